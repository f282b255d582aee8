"""What a batch is about, dead letters or sent messages: how they are found, read, judged, acted on, and proven."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Expression, F, QuerySet, Value

from config.flows import by_kind, letters_of
from config.letters import Effect, EffectState, Judgement, Letters, Refusal
from outbox.channels.handlers import handlers
from outbox.channels.models import ChannelState
from outbox.delivery import levers
from outbox.delivery.message_letters import queue_depth
from outbox.letters import levers as letter_levers
from outbox.letters import redelivery
from outbox.letters.edits import copies_for, take_back_copies
from outbox.letters.field_changes import FieldChange
from outbox.letters.filters import STARTS, Filter
from outbox.letters.models import DeadLetter
from outbox.messages.filters import MessageFilter
from outbox.messages.models import FLOW, OutboxMessage
from outbox.processes.overview import why_missing
from outbox.replay_batches import pacing
from outbox.replay_batches.items import PreviewItem
from outbox.replay_batches.models import OF_MESSAGES, SENDING, ReplayBatch, ReplayItem

Rows = Mapping[uuid.UUID, Any]  # DeadLetter or OutboxMessage by key
EFFECTS: dict[str, EffectState] = {
    "resolved": "resolved", "failed_again": "failed_again", "discarded": "discarded",
}  # fmt: skip
ACTED = ("requeued", "verified", "failed_again")  # states of items whose letter their batch has moved on
REFUSED_NOW = "It would be refused now."
GONE = Effect("refused", "The letter is gone before its effect was seen.")
OPENED = Effect("discarded", "Somebody opened it again.")  # discarded on its way, and restored


class Judged(NamedTuple):
    """Why each row is not eligible now, empty for one that is; and what would be acted on, some of it edited copies."""

    why: Mapping[uuid.UUID, str]
    ready: Sequence[Any]


# -- Dead letters --------------------------------------------------------------------------------------------
Ask = Callable[[Sequence[DeadLetter], datetime], Mapping[uuid.UUID, Judgement]]


class BatchOfLetters:
    """Requeue, edit, discard, resolve, restore: their flows say what may be done, and what became of it."""

    gone = "The letter is gone: its month was dropped."
    # What an item keeps of it.
    copied: Mapping[str, Expression | F] = {
        "letter": F("pk"), "source": F("source"), "step": F("step"), "business_key": F("business_key"),
    }  # fmt: skip

    def filter_of(self, batch: ReplayBatch) -> Filter:
        return Filter.of(batch.filter)

    def rows(self, batch: ReplayBatch) -> QuerySet:
        return self.filter_of(batch).letters(batch.verb)

    def read(self, batch_id: int, items: Sequence[PreviewItem], states: Sequence[str]) -> Rows:
        """The letters between the first of these items and the last one, to be judged.

        Through the items: MySQL needs four times as long for a list of a thousand keys, most of it before it reads a row.
        """
        between = items[0].letter, items[-1].letter
        ours = ReplayItem.objects.filter(batch_id=batch_id, state__in=states, letter__range=between)
        return DeadLetter.objects.filter(pk__in=ours.values("letter")).to_judge().in_bulk()

    def locked(self, ids: Sequence[uuid.UUID]) -> Rows:
        rows = DeadLetter.objects.filter(pk__in=ids).order_by("pk").select_for_update().defer("traceback")
        return {letter.pk: letter for letter in rows}

    def foresee(self, batch: ReplayBatch, rows: Rows, now: datetime) -> Mapping[uuid.UUID, str]:
        """What `judge` will say; a letter that its flow breaks on says so and spares the others."""
        return self._judged(batch, rows, now, redelivery.foresee).why

    def judge(self, batch: ReplayBatch, rows: Rows, now: datetime) -> Judged:
        """Which letters the verb of a batch can act on now. Nothing is written."""
        return self._judged(batch, rows, now, redelivery.judge)

    def _judged(self, batch: ReplayBatch, letters: Mapping[uuid.UUID, DeadLetter], now: datetime, ask: Ask) -> Judged:
        start = STARTS[batch.verb]
        closed = [letter for letter in letters.values() if letter.status != start]
        batches = who_took([letter.pk for letter in closed if letter.status != "open"]) if closed else {}
        why = {letter.pk: _why_closed(letter, batches.get(letter.pk, "")) for letter in closed}
        left = [letter for pk, letter in sorted(letters.items()) if pk not in why]
        if batch.verb == "edit":
            left, skipped = copies_for(FieldChange.of(batch.edit), left)
            why |= skipped
        if batch.sends:
            why |= {pk: _why_not(judgement) for pk, judgement in ask(left, now).items()}
        return Judged(dict.fromkeys(letters, "") | why, [letter for letter in left if not why.get(letter.pk)])

    def act(self, batch: ReplayBatch, ready: Sequence[Any], rows: Rows, now: datetime) -> Mapping[uuid.UUID, Effect]:
        """Do what the batch is for to what `judge` found ready of these rows, in the caller's transaction.

        One that somebody else has moved meanwhile is not in the answer.
        """
        if batch.verb == "edit":
            return take_back_copies(ready, rows, batch.requested_by, batch.user_id, batch.reason, now)
        return letter_levers.act(batch.verb, ready, now, batch.code)

    def effects(self, items: Sequence[ReplayItem], now: datetime) -> Mapping[uuid.UUID, Effect]:
        """What became of these items' letters; those of which nobody knows are not in the answer."""
        ids = [item.letter for item in items]
        redelivery.look_after_these(ids, now)
        columns = ("id", "status", "evidence", "note", "successor")
        known = {letter.pk: letter for letter in DeadLetter.objects.filter(pk__in=ids).only(*columns)}
        effects = {pk: _effect_of(known[pk]) if pk in known else GONE for pk in ids}
        return {pk: effect for pk, effect in effects.items() if effect}

    def awaited(self, verb: str, source: str, step: str) -> bool:
        """Whether the effect comes later, through something that can be flooded."""
        if verb not in SENDING:
            return False
        try:
            return letters_of(source, step).awaited()
        except Refusal:
            return False

    def shares_queue(self, batch: ReplayBatch) -> bool:
        """Whether live traffic waits behind what this batch takes back."""
        return batch.sends and any(
            waits and letters_of(source, step).shares_queue for source, step, waits in batch.kinds
        )

    def pace(self, kinds: Sequence[Sequence[Any]]) -> float:
        """Letters a second: the least of what their channels take, 50 where none says."""
        return min(letters_of(source, step).pace() or pacing.DEFAULT_RATE for source, step, *_ in kinds)

    def queue_depth(self, items: Sequence[ReplayItem], now: datetime) -> str:
        """What live traffic these, on their way, stand behind; empty where nobody says."""
        return next(filter(None, (theirs.queue_depth(letters, now) for theirs, letters in _letters_of(items))), "")

    def backpressure(self, items: Sequence[ReplayItem], now: datetime) -> str:
        """Why these have to wait now; empty when they can go."""
        return next(filter(None, (theirs.backpressure(letters, now) for theirs, letters in _letters_of(items))), "")

    def blocked_reason(self, items: Sequence[ReplayItem], now: datetime) -> str:
        """Why these, on their way, get no further, and what helps; empty where nobody says."""
        reasons = (
            theirs.blocked_reason(letters, now) or why_missing(theirs.required_workers(letters), now)
            for theirs, letters in _letters_of(items)
        )
        return next(filter(None, reasons), "")


def _letters_of(items: Sequence[ReplayItem]) -> Iterator[tuple[Letters, list[DeadLetter]]]:
    """The letters of items with what their flow knows of them; those of no flow are left out."""
    rows = DeadLetter.objects.filter(pk__in=[item.letter for item in items])
    return by_kind(list(rows.defer("payload", "traceback", "headers")))


def who_took(ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, str]:
    """`{letter: replay batch and whose}` for those of these letters that a batch has acted on; the newest one counts."""
    acted = ReplayItem.objects.filter(letter__in=ids, state__in=ACTED).order_by("batch_id").select_related("batch")
    return {item.letter: f"{item.batch} of {item.batch.requested_by}" for item in acted}


def _why_closed(letter: DeadLetter, by: str) -> str:
    """A letter that another lever, a batch, or its own replay has moved on."""
    if letter.status == "open":
        return "It is open."
    return f"It is {letter.status.replace('_', ' ')} already{f': {by}' if by else ''}."


def _why_not(judgement: Judgement) -> str:
    """The reason of a judgement in one line, the same for all letters that share it."""
    if judgement.eligible:
        return ""
    words = [] if judgement.why and judgement.verdict == REFUSED_NOW else [judgement.verdict]
    return " ".join(filter(None, [*words, judgement.why])) or "It cannot be taken back now."


def _effect_of(letter: DeadLetter) -> Effect | None:
    if letter.status == DeadLetter.Status.OPEN:
        return OPENED
    if letter.status not in EFFECTS:
        return None
    return Effect(EFFECTS[letter.status], letter.evidence or letter.note, successor=letter.successor)


# -- Sent messages -------------------------------------------------------------------------------------------
class BatchOfMessages:
    """Resend: sent messages, each said once more by a new one, which is the successor of its item."""

    gone = "It is not kept any more, and its text is gone with it."
    copied: Mapping[str, Expression | F] = {
        "letter": F("pk"), "source": Value(FLOW), "step": F("channel"), "business_key": F("aggregate"),
    }  # fmt: skip

    def filter_of(self, batch: ReplayBatch) -> MessageFilter:
        return MessageFilter.of(batch.filter)

    def rows(self, batch: ReplayBatch) -> QuerySet:
        """Up to the request by the database's clock: the ids of messages are made of those of hosts."""
        chosen = self.filter_of(batch)
        return chosen.rows() if chosen.ids else chosen.rows().filter(created_at__lte=batch.created_at)

    def read(self, batch_id: int, items: Sequence[PreviewItem], states: Sequence[str]) -> Rows:
        return OutboxMessage.objects.among([item.letter for item in items]).in_bulk()

    def locked(self, ids: Sequence[uuid.UUID]) -> Rows:
        rows = OutboxMessage.objects.among(ids).order_by("pk").select_for_update()
        return {message.pk: message for message in rows}

    def foresee(self, batch: ReplayBatch, rows: Rows, now: datetime) -> Mapping[uuid.UUID, str]:
        return self.judge(batch, rows, now).why

    def judge(self, batch: ReplayBatch, rows: Rows, now: datetime) -> Judged:
        why = levers.why_not_resent(list(rows.values()), now)
        return Judged(why, [row for pk, row in sorted(rows.items()) if not why[pk]])

    def act(self, batch: ReplayBatch, ready: Sequence[Any], rows: Rows, now: datetime) -> Mapping[uuid.UUID, Effect]:
        return levers.resend_these(ready, batch.pk, now)

    def effects(self, items: Sequence[ReplayItem], now: datetime) -> Mapping[uuid.UUID, Effect]:
        made = {item.successor: item.letter for item in items if item.successor}
        return {made[pk]: effect for pk, effect in levers.effects_of_copies(list(made)).items()}

    def awaited(self, verb: str, source: str, step: str) -> bool:
        return True

    def shares_queue(self, batch: ReplayBatch) -> bool:
        return True

    def pace(self, kinds: Sequence[Sequence[Any]]) -> float:
        """Of the slowest of its channels; what is left of one that is gone is refused anyway."""
        rates = [known.rate() for _source, channel, _waits in kinds if (known := handlers().get(channel))]
        return min(filter(None, rates), default=pacing.DEFAULT_RATE)

    def queue_depth(self, items: Sequence[ReplayItem], now: datetime) -> str:
        return queue_depth([item.successor for item in items if item.successor], now)

    def backpressure(self, items: Sequence[ReplayItem], now: datetime) -> str:
        return ChannelState.objects.why_closed({item.step for item in items}, now)

    def blocked_reason(self, items: Sequence[ReplayItem], now: datetime) -> str:
        return self.backpressure(items, now) or why_missing({"relay_outbox": {item.step for item in items}}, now)


Subject = BatchOfLetters | BatchOfMessages
LETTERS, MESSAGES = BatchOfLetters(), BatchOfMessages()


def subject_of(verb: str) -> Subject:
    return MESSAGES if verb in OF_MESSAGES else LETTERS


def words_of(batch: ReplayBatch) -> str:
    """Its filter in words."""
    return subject_of(batch.verb).filter_of(batch).words()
