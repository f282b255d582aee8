"""What producers are told: which of their records became letters, in the topic `messages-refused`; never what they say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from django.conf import settings
from django.db import transaction

from config.fields import storable, uuid7
from config.kafka import Record
from config.kafka.debezium import text_of
from config.telemetry.logs import log_committed
from config.telemetry.tracing import traceparent_in
from outbox.bookkeeping import counters
from outbox.channels.handlers import ids_of
from outbox.intake.envelope import PRODUCER, header_of, stated
from outbox.letters.burial import Letter
from outbox.messages import notify
from outbox.messages.models import FLOW, OutboxMessage
from outbox.messages.publish import KEYLESS, expiry_of

CHANNEL = "kafka"
EVENT = "message.refused"


def tell(letters: Sequence[Letter], now: datetime) -> None:
    """Promise a record about each of these new letters, in the transaction that has written them.

    A letter that came back from another tells nobody: its record was refused before, and an operator is at work on it.

    The messages have no idempotency keys: the burial keys of their letters are theirs. Keys would have to be numbered
    here, behind the keys of the promises; on MariaDB whoever waits for one of those keeps the next number, and sees no
    deadlock in that.
    """
    fresh = [letter for letter in letters if not letter.revision] if settings.MESSAGES_REFUSED else []
    if not fresh:
        return
    messages = [_message(letter, now) for letter in fresh]
    OutboxMessage.objects.bulk_create(messages)
    counters.add({(FLOW, "", KEYLESS): len(messages)}, now)
    transaction.on_commit(notify.notify_relays, robust=True)
    log_committed("messages_published", messages=len(messages), ids=ids_of(messages))


def _message(letter: Letter, now: datetime) -> OutboxMessage:
    """One that every database takes, whatever its character set: a record that cannot be refused would be tried for ever."""
    record = letter.record
    payload = {"topic": settings.MESSAGES_REFUSED_TOPIC, "key": _key(letter), "value": refusal(letter, now)}
    correlation = header_of(record, "correlation_id")[:100]
    return OutboxMessage(
        id=uuid7(),
        channel=CHANNEL,
        event_type=EVENT,
        aggregate=f"letter:{letter.id}",  # of its own: nothing waits for it, and it waits for nothing
        payload=json.dumps(payload),
        correlation_id=correlation if correlation.isascii() else "",
        traceparent=traceparent_in(record.headers),
        created_at=now,
        available_at=now,
        expires_at=expiry_of(now),
    )


def refusal(letter: Letter, now: datetime) -> Mapping[str, object]:
    """The value of the record."""
    record = letter.record
    named = {"idempotency_key": stated(record, "idempotency_key"), "producer": header_of(record, PRODUCER)}
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        **{name: storable(text) for name, text in named.items() if text},
        "reason": letter.reason,
        "letter": str(letter.id),
        "refused_at": now.isoformat(),
    }


def _key(letter: Letter) -> str:
    """The aggregate; of a record that names none its key, as far as that is text."""
    return storable(letter.business_key or _text(letter.record))


def _text(record: Record) -> str:
    key = text_of(record.key).value
    return key if isinstance(key, str) else ""
