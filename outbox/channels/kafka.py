"""The outbox as a general relay: a message becomes a record in a Kafka topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from django.conf import settings

from config.kafka import Failed, Outgoing, Producer, Refused, SendResult, Sent, topic_name
from config.kafka.records import RecordReceipt
from outbox.channels import handlers


class Bytes(msgspec.Struct, forbid_unknown_fields=True):
    """A header's value that is no text; in JSON as base64."""

    base64: bytes


Value = str | None | Bytes


class Payload(msgspec.Struct, forbid_unknown_fields=True):
    """What `publish(channel="kafka")` takes. A text value goes out as it is, anything else as JSON.

    Headers are an object, or a list of pairs where names may repeat; ours come behind them. Of an object ours replace
    those of the same name, of a list they are left out instead.
    """

    topic: str
    key: str
    value: Any
    headers: dict[str, Value] | list[tuple[str, Value]] | None = None


class KafkaHandler(handlers.MessageHandler):
    """Acknowledging batches: after a crash records may come again, and their header `message_id` tells.

    The topic is a name without KAFKA_TOPIC_PREFIX, as everywhere.
    """

    acknowledges = "batch"

    def __init__(self) -> None:
        self.timeout = min(45.0, settings.OUTBOX_LEASE_SECONDS / 2)
        self.producer = Producer(patience=self.timeout * 0.75, max_block_ms=int(self.timeout * 200))

    def send(self, messages: Sequence[handlers.Message]) -> list[handlers.Outcome]:
        records = [record_of(message) for message in messages]
        results = self.producer.send_all(records)
        # Where the broker took others, it is there: a topic that does not exist must not open the breaker.
        reached = any(isinstance(result, Sent) for result in results)
        ids = self.producer.topic_ids({record.topic for record in records}) if reached else {}
        return [
            outcome_of(result, "transient" if reached else "unreachable", ids.get(record.topic, ""))
            for record, result in zip(records, results, strict=True)
        ]

    def where(self) -> str:
        return ",".join(settings.KAFKA_BOOTSTRAP_SERVERS)

    def check(self, payload: object) -> None:
        try:
            wanted = msgspec.convert(payload, Payload)
        except msgspec.ValidationError as error:
            raise ValueError(f"payload of channel kafka: {error}") from None
        if not wanted.topic:
            raise ValueError("payload of channel kafka: `topic` is empty")


def record_of(message: handlers.Message) -> Outgoing:
    payload = msgspec.json.decode(message.payload, type=Payload)
    value = payload.value.encode() if isinstance(payload.value, str) else msgspec.json.encode(payload.value)
    # `message_id` is ours: a receiver that remembers it counts each message once.
    ours = {name: text for name, text in message.headers.items() if text}
    given = payload.headers or {}
    if isinstance(given, dict):
        theirs = [(name, content) for name, content in given.items() if name not in ours]
    else:
        theirs, names = given, {name for name, _content in given}
        ours = {name: text for name, text in ours.items() if name not in names}
    headers = [(name, _bytes(content)) for name, content in (*theirs, *ours.items())]
    return Outgoing(topic_name(payload.topic), payload.key, value, headers)


def _bytes(content: Value) -> bytes | None:
    return content.base64 if isinstance(content, Bytes) else None if content is None else content.encode()


def outcome_of(result: SendResult, failed: handlers.Kind, topic_id: str) -> handlers.Outcome:
    if isinstance(result, Refused):
        return handlers.Outcome("permanent", result.error)
    if isinstance(result, Failed):
        return handlers.Outcome(failed, result.error)
    return handlers.Outcome("sent", receipt=str(RecordReceipt(result.partition, result.offset, topic_id)))
