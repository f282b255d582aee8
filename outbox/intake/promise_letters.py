"""Letters of promised messages: their records are stored again, and the message that was made of one proves it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from config.flows import order_in
from config.formats import entry_of, shown
from config.formats.registry import RegistryUnavailable
from config.gate import InvalidRecord
from config.letters import Effect, Judgement, Letters, PayloadForm, Refusal
from outbox.channels.handlers import handlers
from outbox.channels.models import ChannelState
from outbox.delivery.message_letters import channels_of, effects_of_messages, pace
from outbox.intake import reached
from outbox.intake.envelope import LOCKED, NAMED, READABLE, Prepared, envelope_of, gate_of, keys_named_in
from outbox.intake.handler import Intake
from outbox.letters.models import DeadLetter
from outbox.letters.redelivery import (
    Returned,
    ReturnedBatch,
    batch_of,
    failed_again,
    foreseen,
    not_eligible,
    record_of,
    refusals,
    returns_of,
    would_refuse,
)
from outbox.messages.models import OutboxMessage

STORED = Judgement(True, "A message is made of it.", "It has all its tries, and a new expiry.", "ok")
KNOWN = Judgement(True, "Changes nothing.", "Its key has this message already.", "idle")
UNSURE = Judgement(
    True,
    "A message is made of it.",
    "Its key is not its record's: whether that was used long ago, nobody knows.",
    "warn",
)
FORGOTTEN = (
    "its key may have been deleted before letters kept theirs: nobody knows whether it was sent. "
    "If it was not, edit a copy and give it another idempotency_key"
)
REPEATED = "its key has this message already"


class PromiseLetters(Letters[DeadLetter]):
    """The dead letters of records in which services promise messages."""

    readable = READABLE
    named = NAMED
    locked = LOCKED
    shares_queue = True
    keyed = True

    def order_in(self, key: str, topic: str) -> str:
        return order_in(key)

    def opened(self, letter: DeadLetter) -> tuple[bytes, str]:
        return shown(gate_of(letter.topic), entry_of(letter.topic), bytes(letter.payload or b""))

    def judge(self, letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Judgement]:
        returns, refused = returns_of(letters)
        judgements = not_eligible(refused)
        handler = Intake()
        for back in returns:
            batch = back.batch
            prepared = batch.prepared = handler.prepare(batch)
            judgements |= foreseen(prepared.letters)
            unlike = handler.foresee(batch)
            judgements |= {
                letter.pk: _judged(unlike[id(record)]) for letter, record in back.pairs if id(record) in unlike
            }
            judgements |= dict.fromkeys(self._strange(back, unlike), UNSURE)
            judgements |= dict.fromkeys(_forgotten(back, unlike, now), would_refuse(FORGOTTEN))
        return judgements

    def _strange(self, back: ReturnedBatch, unlike: Mapping[int, str | None]) -> set[UUID]:
        """Edited letters whose key nobody has kept: their record does not name it, and it is not known."""
        new = {id(promise.record): promise.key for promise in back.batch.prepared.promises}
        keys = {letter.pk: new[id(record)] for letter, record in _new(back, unlike) if letter.edit}
        originals = DeadLetter.objects.filter(pk__in=keys).to_judge() if keys else ()
        return {letter.pk for letter in originals if keys[letter.pk] not in self.keys(letter)}

    def take_back(self, letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Effect]:
        """Store the promises at the next revision, in the caller's transaction."""
        returns, refused = returns_of(letters)
        effects = refusals(refused)
        handler = Intake()
        for back in returns:
            batch = back.batch
            batch.prepared = handler.prepare(batch)
            forgotten = _forgotten(back, handler.foresee(batch), now)
            effects |= refusals(dict.fromkeys(forgotten, FORGOTTEN))
            batch.prepared.leave_out([record for letter, record in back.pairs if letter.pk in forgotten])
            taken = handler.apply(batch, now)
            effects |= failed_again(taken.letters)
            for letter, record in back.pairs:
                if message := taken.stored.get(id(record)):
                    effects[letter.pk] = Effect("waiting", "its message waits to be sent", carrier=message)
                elif id(record) in taken.repeats:
                    effects[letter.pk] = Effect("resolved", REPEATED, carrier=taken.repeats[id(record)])
        return effects

    def effect(self, letters: Sequence[DeadLetter], now: datetime) -> Mapping[UUID, Effect]:
        """What became of the messages that were made of them: a letter of such a message is found by its aggregate."""
        carried = [letter for letter in letters if letter.carrier]
        messages = OutboxMessage.objects.among([letter.carrier for letter in carried if letter.carrier])
        aggregates = dict(messages.values_list("id", "aggregate"))
        for letter in carried:  # what could not be read has no business key
            letter.business_key = aggregates.get(letter.carrier, letter.business_key)
        return effects_of_messages(carried)

    def awaited(self) -> bool:
        return True

    def backpressure(self, letters: Sequence[DeadLetter], now: datetime) -> str:
        prepared = [_prepared(letter) for letter in letters if not letter.is_excerpt and letter.offset is not None]
        channels = {promise.channel for part in prepared for promise in part.promises}
        return ChannelState.objects.why_closed(channels, now)

    def blocked_reason(self, letters: Sequence[DeadLetter], now: datetime) -> str:
        return ChannelState.objects.why_closed(_channels_of_messages(letters), now)

    def required_workers(self, letters: Sequence[DeadLetter]) -> Mapping[str, Collection[str]]:
        return {"relay_outbox": _channels_of_messages(letters)}  # they do not go through their topic again

    def pace(self) -> float:
        return pace()

    def keys(self, letter: DeadLetter) -> Collection[str]:
        try:
            return keys_named_in(record_of(letter))
        except Refusal:  # it cannot come back
            return ()

    def why_not_edited(self, letter: DeadLetter) -> str:
        return ""

    def faults(self, letter: DeadLetter) -> list[str]:
        """What is wrong with its record, and where, as far as a channel says it of a payload; nothing is written."""
        fields, place = _placed(letter)
        errors = [buried.error for buried in _prepared(letter).letters]
        payload = fields.get("payload")
        handler = handlers().get(str(fields.get("channel"))) if errors and isinstance(payload, dict) else None
        more = handler.faults(payload) if handler else []  # the gate says the first of them
        errors += [fault for fault in more if not any(fault in error for error in errors)]
        return [error.replace("at `$", f"at `{place or '$'}") for error in errors]

    def form(self, letter: DeadLetter) -> PayloadForm | None:
        fields, place = _placed(letter)
        handler = handlers().get(str(fields.get("channel"))) if place else None
        form = handler.form(fields.get("payload")) if handler else None
        return form.inside(place) if form else None


def _placed(letter: DeadLetter) -> tuple[dict[str, object], str]:
    """The fields of its record and the place of the payload in it; none of what cannot be read."""
    try:
        envelope = envelope_of(record_of(letter))
        return envelope.fields, envelope.place
    except (InvalidRecord, RegistryUnavailable, Refusal):
        return {}, "$"


def _new(back: ReturnedBatch, unlike: Mapping[int, str | None]) -> list[tuple[DeadLetter, Returned]]:
    """Those whose keys are not known."""
    return [(letter, record) for letter, record in back.pairs if unlike.get(id(record), "") is None]


def _forgotten(back: ReturnedBatch, unlike: Mapping[int, str | None], now: datetime) -> set[UUID]:
    """Letters of before keys were kept for them, whose key is not known: it may have been. An edit may give another."""
    new = [letter.pk for letter, _ in _new(back, unlike) if not letter.edit]
    if not new:
        return set()
    old = DeadLetter.objects.filter(pk__in=new, created_at__lt=reached.keys_kept_from(now))
    return set(old.values_list("pk", flat=True))


def _channels_of_messages(letters: Sequence[DeadLetter]) -> set[str]:
    return channels_of([letter for letter in letters if letter.carrier])


def _prepared(letter: DeadLetter) -> Prepared:
    try:
        return Intake().prepare(batch_of(letter))
    except RegistryUnavailable:  # of which judgement and requeue tell
        return Prepared()


def _judged(unlike: str | None) -> Judgement:
    if unlike is None:
        return STORED
    return Judgement(False, "Fails again.", unlike, "warn") if unlike else KNOWN
