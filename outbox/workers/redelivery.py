"""Letters of change capture: the hint is read again, and the state of the message that it names proves it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings

from config.gate import InvalidRecord
from config.kafka import topic_name
from config.redelivery import Effect, Judgement, Refusal
from config.telemetry.redaction import masked_error
from config.uuid7 import smallest_uuid7
from outbox.letters.burial import Letter, bury
from outbox.letters.models import DeadLetter
from outbox.letters.redelivery import failed_again, record_of, would_refuse
from outbox.messages.models import FLOW, UNFINISHED, OutboxMessage
from outbox.workers import change_capture
from outbox.workers.change_capture import CDC_GROUP

NO_HINT = "the record names no new message: nothing is missing"
READ = "read; the poller takes what it hints at"


def judge(letters: Sequence[DeadLetter]) -> dict[UUID, Judgement]:
    return {letter.pk: _judged(letter) for letter in letters}


def take_back(letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Effect]:
    """Read the hints; the poller claims what they name in any case. What is still no hint is a letter once more."""
    found: dict[UUID, Effect] = {}
    failed: list[Letter] = []
    for letter in letters:
        try:
            hint = _read(letter)
        except InvalidRecord as refusal:
            place = (record_of(letter), letter.topic_id, letter.revision + 1)
            failed.append(Letter(FLOW, "decode", refusal.reason, str(refusal), *place))
        except Refusal as refusal:
            found[letter.pk] = Effect("refused", str(refusal))
        else:
            found[letter.pk] = Effect("waiting", READ, carrier=hint) if hint else Effect("resolved", NO_HINT)
    bury(failed, topic_name(CDC_GROUP), now)
    return found | failed_again(failed)


def effect(letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Effect]:
    """Whether the messages they name are in a final state; retention takes only those that are."""
    states = dict(
        OutboxMessage.objects.among([letter.carrier for letter in letters if letter.carrier]).values_list("id", "state")
    )
    kept = now - timedelta(days=settings.OUTBOX_RETENTION_DAYS)
    oldest = smallest_uuid7(int(kept.timestamp() * 1000))
    return {letter.pk: _effect(letter.carrier, states, oldest) for letter in letters}


def _effect(message_id: UUID | None, states: dict[UUID, str], oldest: UUID) -> Effect:
    if message_id is None:
        return Effect("resolved", NO_HINT)
    state = states.get(message_id)
    if state is None:
        gone = message_id < oldest
        return Effect("resolved", "its message ended and was dropped") if gone else Effect("waiting", "no such message")
    return Effect("waiting" if state in UNFINISHED else "resolved", f"its message is {state.replace('_', ' ')}")


def _read(letter: DeadLetter) -> UUID | None:
    """The message that the record hints at; None for one that is about something else."""
    found = change_capture.read_change(record_of(letter).value)
    return found.id if isinstance(found, change_capture.Hint) else None


def _judged(letter: DeadLetter) -> Judgement:
    try:
        hint = _read(letter)
    except InvalidRecord as refusal:
        return Judgement(False, "Fails again.", masked_error(str(refusal)), "warn")
    except Refusal as refusal:
        return would_refuse(str(refusal))
    return Judgement(True, "The hint is read.", f"It names message {hint}." if hint else "It names no message.", "ok")
