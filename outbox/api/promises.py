"""Messages that a program promises by HTTP: each is read as a record of `messages-in` is, and all are stored, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import msgspec
from django.db import transaction

from config.database.retry import Remedy
from config.gate import InvalidRecord
from config.kafka import RecordBatch, Replayed
from config.kafka.debezium import shown
from config.processes.worker import until_it_stands
from config.telemetry import metrics
from config.telemetry.logs import correlation_id
from config.telemetry.redaction import without_addresses
from config.telemetry.tracing import traceparent
from outbox.api.problems import Problem
from outbox.intake.envelope import LENGTHS, Promise, Taken, check_handled, promised
from outbox.intake.handler import Intake
from outbox.messages.models import OutboxMessage

PLACE = "http"  # where these promises come from, beside the topics of MESSAGES_IN
MOST_RERUNS = 20
REMOVED = "removed"  # the state of a message that is not kept any more
STATES = OutboxMessage.State.values
# An envelope, as the OpenAPI document describes it; all of it says docs/messages-in.schema.json.
ENVELOPE: dict[str, Any] = {
    "type": "object",
    "required": [*LENGTHS, "payload"],
    "properties": {
        **{name: {"type": "string", "minLength": 1, "maxLength": most} for name, most in LENGTHS.items()},
        "payload": {"type": "object", "description": "What the channel takes."},
        "expires_at": {"type": "string", "format": "date-time", "description": "Optional; nobody wants it later."},
    },
    "examples": [
        {
            "channel": "email",
            "event_type": "invoice.issued",
            "aggregate": "invoice:4711",
            "idempotency_key": "4711/issued",
            "payload": {"to": "ada@example.com", "subject": "Your invoice 4711", "text": "Hello,\n\nit is ready.\n"},
        }
    ],
}
Result = TypeVar("Result")


class Promiser(NamedTuple):
    """Who promises: its name, before which no other's keys stand, and the channels that it may use."""

    name: str
    channels: Collection[str]

    @property
    def namespace(self) -> str:
        """A topic has no colon in its name: keys of a topic and its producers never are those of a program."""
        return f"{PLACE}:{self.name}"


class Promised(NamedTuple):
    """What became of a promise: its message, None if that is not known any more, and the message's state."""

    id: UUID | None
    idempotency_key: str
    state: str


def read_promises(envelopes: Sequence[object], promiser: Promiser) -> list[Promise]:
    """What these envelopes promise, in their order. Outside any transaction.

    Raises Problem with every fault by its index: `forbidden` where a channel is not the promiser's, else `invalid`.
    """

    def namespace_for(channel: str) -> str:
        if channel not in promiser.channels:
            most = ", ".join(promiser.channels)
            raise InvalidRecord("channel_not_allowed", f"this token promises messages of {most}, not {shown(channel)}")
        check_handled(channel)
        return promiser.namespace

    known = {"traceparent": traceparent(), "correlation_id": correlation_id()}
    headers = tuple((name, text.encode()) for name, text in known.items() if text)
    promises, faults = [], []
    for index, envelope in enumerate(envelopes):
        record = Replayed(PLACE, 0, index, -1, None, msgspec.json.encode(envelope), headers)  # promised now
        try:
            promises.append(promised(record, namespace_for))
        except InvalidRecord as refusal:
            faults.append(_fault(index, refusal.reason, str(refusal)))
    if faults:
        raise _refused(faults)
    return promises


def store_promises(promises: Sequence[Promise], promiser: Promiser, now: datetime) -> list[Promised]:
    """Store them in the caller's transaction; what is known by its key is not stored again.

    Raises Problem `invalid` if a key was used for another message: nothing of the transaction may stay.
    """
    taken = Taken()
    Intake().store(RecordBatch([promise.record for promise in promises], {}), promises, taken, now)
    if taken.letters:
        raise _refused([_fault(letter.record.offset, letter.reason, letter.error) for letter in taken.letters])
    transaction.on_commit(partial(_measure, Counter({outcome: n for (_, outcome), n in taken.outcomes.items()})))
    known = OutboxMessage.objects.among(filter(None, taken.repeats.values()))
    states = dict(known.values_list("id", "state")) | dict.fromkeys(taken.stored.values(), "pending")
    ids = taken.repeats | taken.stored
    named = [(ids[id(promise.record)], promise.key.removeprefix(f"{promiser.namespace}/")) for promise in promises]
    return [Promised(message_id, key, states.get(message_id, REMOVED)) for message_id, key in named]


def until_stored(unit: Callable[[], Result]) -> Result:
    """Run a unit of one transaction again while it loses races or deadlocks."""
    return until_it_stands(unit, "promises", lambda failures, remedy: remedy is Remedy.RERUN and failures < MOST_RERUNS)


def message_seen_by(promiser: Promiser, message_id: UUID) -> OutboxMessage:
    """The message without its payload. Raises Problem `not_found`, also for one of a channel that is not the promiser's."""
    messages = OutboxMessage.objects.among([message_id]).filter(channel__in=promiser.channels)
    message: OutboxMessage | None = messages.defer("payload").first()
    if message is None:
        raise Problem("not_found", f"this token's channels have no message {message_id}")
    return message


def _fault(index: int, reason: str, text: str) -> dict[str, str]:
    """As the letter of a refused record says it."""
    return {"where": f"body.messages.{index}", "what": without_addresses(text), "reason": reason}


def _refused(faults: Sequence[Mapping[str, str]]) -> Problem:
    _measure(Counter(refused=len(faults)))
    forbidden = [fault for fault in faults if fault["reason"] == "channel_not_allowed"]
    if forbidden:
        return Problem("forbidden", forbidden[0]["what"], errors=forbidden)
    return Problem("invalid", errors=faults)


def _measure(outcomes: Mapping[str, int]) -> None:
    for outcome, number in outcomes.items():
        metrics.INTAKE_RECORDS.labels(PLACE, outcome).inc(number)
