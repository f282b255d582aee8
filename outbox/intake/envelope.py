"""What a record of `messages-in` promises: as an envelope, or as Debezium's outbox event router brings it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from django.conf import settings

from config.gate import Gate, InvalidRecord
from config.kafka import Record
from config.kafka.debezium import shown, time_of
from config.kafka.records import exact_text
from config.payload import is_blank
from outbox.channels.handlers import handler_of, handlers
from outbox.letters.burial import Letter, Place, RecordOutcomes
from outbox.messages.publish import content_hash, encode

# What may be read of a record without a reveal, and what is named although its values are hidden.
READABLE = ("channel", "event_type", "aggregate", "idempotency_key", "expires_at")
NAMED = (
    "payload",
    *(f"payload.{name}" for name in ("to", "from", "subject", "text", "html", "headers", "topic", "key")),
)
# What says where it goes and what it is about. A key that was used for something else may be replaced.
LOCKED = ("channel", "event_type", "aggregate")

LENGTHS = {"channel": 50, "event_type": 100, "aggregate": 200, "idempotency_key": 200}
LONGEST_NUMBER = 2**63
# What a text of JSON inside JSON, a schema and the other fields take beside the payload itself.
OVERHEAD = 65_536
# The router's record is the payload alone: its headers say the rest, under the names of our fields or its own.
HEADERS = {**{name: name for name in READABLE}, "id": "idempotency_key", "eventType": "event_type"}
PRODUCER = "producer"


class Promise(NamedTuple):
    """A message that a record promises, as it is to be stored."""

    record: Record
    channel: str
    event_type: str
    aggregate: str
    text: str  # the payload, completed: byte for byte what every attempt sends
    given: Mapping[str, object]  # the payload as it came
    key: str  # behind the name of who may promise it: two services do not know each other's keys
    expires_at: datetime | None

    @property
    def digest(self) -> str:
        return content_hash(self.channel, self.event_type, self.aggregate, self.text)


def read(record: Record, topic: str) -> Promise:
    """The promise of a record of `topic` (its contract name). Raises InvalidRecord: a reason of the gate, or one of

    `missing_field` `wrong_field` `bad_expires_at` · `unknown_producer` `channel_not_allowed` · `payload_refused`.
    """
    fields = fields_of(record)
    channel, event_type, aggregate, key = (_text(fields, name) for name in LENGTHS)
    payload = _payload(fields)
    given_expiry = fields.get("expires_at")
    expires_at = None if is_blank(given_expiry) else time_of("expires_at", given_expiry)
    namespace = allowed(topic, header_of(record, PRODUCER), channel)
    name = f"{namespace}/{key}"
    if len(name) > LENGTHS["idempotency_key"]:
        most = LENGTHS["idempotency_key"] - len(namespace) - 1
        raise InvalidRecord("wrong_field", f"`idempotency_key` has {len(key)} characters, at most {most} are accepted")
    try:
        at = record.timestamp / 1000 if record.timestamp > 0 else time.time()
        whole = handler_of(channel).complete(payload, name, at)
        text = encode(channel, event_type, aggregate, whole, name)
    except (ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidRecord("payload_refused", f"`payload` cannot be sent: {error}") from None
    return Promise(record, channel, event_type, aggregate, text, payload, name, expires_at)


def fields_of(record: Record) -> dict[str, object]:
    """The fields of the envelope, unchecked; raises InvalidRecord for what is no JSON object."""
    return placed_fields(record)[0]


def placed_fields(record: Record) -> tuple[dict[str, object], str]:
    """The same, and the path at which the record has the payload: `$.payload`, or `$` where it is the payload alone."""
    place = "$"
    body = _gate(OVERHEAD + 2 * settings.OUTBOX_MAX_BYTES).decode(record.value)
    if "payload" in body and body.keys() <= {"schema", "payload"} and isinstance(body.get("schema"), dict):
        inner = body["payload"]
        body, place = (inner, "$.payload") if isinstance(inner, dict) else ({"payload": inner}, "$")
    said = {HEADERS[name]: exact_text(value) for name, value in record.headers or () if name in HEADERS and value}
    if "payload" in body:
        return {**body, **{name: said[name] for name in said if is_blank(body.get(name))}}, f"{place}.payload"
    if said.get("idempotency_key"):  # the router's own shape
        return {"aggregate": exact_text(record.key or b""), **said, "payload": body}, place
    return body, place


def aggregate_in(record: Record) -> str:
    """What a refused record is about, as far as it says so."""
    try:
        return _text(fields_of(record), "aggregate")
    except InvalidRecord:
        return ""


def header_of(record: Record, name: str) -> str:
    """The last header of this name as text; empty without one."""
    values = [exact_text(value) or "" for known, value in record.headers or () if known == name and value]
    return values[-1] if values else ""


def allowed(topic: str, producer: str, channel: str) -> str:
    """The name before the keys of whoever may promise messages of `channel` in `topic`; InvalidRecord if nobody may.

    A producer that MESSAGES_IN names has its own channels and its own keys; all others are the topic.
    """
    grants: Mapping[str, Sequence[str]] = settings.MESSAGES_IN.get(topic, {})
    known = producer if producer in grants else ""
    if known not in grants:
        who = f"the producer {shown(producer)}" if producer else "a record without the header `producer`"
        raise InvalidRecord("unknown_producer", f"MESSAGES_IN lets {who} promise nothing in {topic}")
    if channel not in grants[known]:
        place = f"{topic}@{known}" if known else topic
        raise InvalidRecord(
            "channel_not_allowed", f"MESSAGES_IN lets {place} use {', '.join(grants[known])}, not {shown(channel)}"
        )
    if channel not in handlers():
        raise InvalidRecord("channel_not_allowed", f"HANDLERS has no channel {shown(channel)}")
    return f"{topic}@{known}" if known else topic


def _gate(max_bytes: int) -> Gate[dict[str, object]]:
    return Gate(OBJECT, max_bytes)


OBJECT = msgspec.json.Decoder(dict[str, Any])


def _text(fields: Mapping[str, object], name: str) -> str:
    """A field that is a text; the number of a column counts as its digits."""
    value = fields.get(name)
    if value is None:
        raise InvalidRecord("missing_field", f"`{name}` is missing")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < LONGEST_NUMBER:
        value = str(value)
    if not isinstance(value, str) or not 0 < len(value) <= LENGTHS[name]:
        raise InvalidRecord("wrong_field", f"`{name}` is not a text of 1 to {LENGTHS[name]} characters")
    return value


def _payload(fields: Mapping[str, object]) -> dict[str, object]:
    """An object, or the text of one: a JSON column is a text to a connector."""
    payload = fields.get("payload")
    if payload is None:
        raise InvalidRecord("missing_field", "`payload` is missing")
    if isinstance(payload, str):
        try:
            return _gate(2 * settings.OUTBOX_MAX_BYTES).decode(payload.encode())
        except InvalidRecord as refusal:
            raise InvalidRecord(refusal.reason, f"`payload`: {refusal}") from None
    if not isinstance(payload, dict):
        raise InvalidRecord("wrong_field", "`payload` is no JSON object")
    return payload


# -- A polled batch of them, each compared with the message that its key was first used for ------------------
FILLED_IN = object()  # in place of a value that the service did not give
CONFLICT = "the key was used for another message: its {} differs"


@dataclass
class Prepared:
    """A decoded batch: promises in the order of their offsets, and what was refused."""

    promises: list[Promise] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    read: Counter[Place] = field(default_factory=Counter)
    outside: Counter[Place] = field(default_factory=Counter)  # of a replay: older than keys are kept

    def leave_out(self, records: Sequence[Record]) -> None:
        """As if they had not been in the batch."""
        ids = set(map(id, records))
        self.promises = [promise for promise in self.promises if id(promise.record) not in ids]
        self.read.subtract((record.topic, record.partition) for record in records)


class StoredMessage(NamedTuple):
    """The message that a key stands for, as far as it is still there."""

    channel: str
    event_type: str
    aggregate: str
    text: str


def difference(promise: Promise, stored: StoredMessage | None) -> str:
    """What of a promise is not as the message that its key was first used for says; empty for a repeat.

    Fields that the service left out, and the channel filled in, may have been filled in differently then.
    """
    if stored is None:  # retention took it
        return "payload"
    for name in ("channel", "event_type", "aggregate"):
        if getattr(promise, name) != getattr(stored, name):
            return name
    if promise.text == stored.text:
        return ""
    before, now = msgspec.json.decode(stored.text), msgspec.json.decode(promise.text)
    unlike = sorted(
        name
        for name in before.keys() | now.keys()
        if not _says_the_same(promise.given.get(name, FILLED_IN), now.get(name), before.get(name))
    )
    return f"payload ({unlike[0]})" if unlike else ""


def _says_the_same(given: object, now: object, before: object) -> bool:
    """Whether what a service gave, which is now stored as `now`, stands in `before`; what was filled in may differ."""
    if isinstance(given, dict) and isinstance(now, dict) and isinstance(before, dict):
        return now.keys() == before.keys() and all(
            _says_the_same(given.get(name, FILLED_IN), now[name], before[name]) for name in now
        )
    if given is FILLED_IN:
        return now is not None and before is not None
    if is_blank(given) and now != given:  # it counts as left out; before it did, it was stored as it came
        return before == given or (now is not None and before is not None)
    return bool(now == before)


@dataclass
class Taken(RecordOutcomes):
    """What a batch of promises became."""

    REPEATED = "repeated"

    stored: dict[int, UUID] = field(default_factory=dict)  # id of the record → of its message
    repeats: dict[int, UUID | None] = field(default_factory=dict)  # the same of records that were known
