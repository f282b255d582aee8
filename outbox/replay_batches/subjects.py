"""What a batch is about, dead letters or sent messages: how they are found, read, judged, acted on, and proven."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Expression, F, QuerySet, Value

from config.flows import letters_of
from config.redelivery import Effect, EffectState, Refusal
from outbox.channels.handlers import handlers
from outbox.channels.models import ChannelState
from outbox.delivery import levers
from outbox.delivery.redelivery import ahead
from outbox.letters import redelivery
from outbox.letters.filters import Filter
from outbox.letters.models import DeadLetter
from outbox.messages.filters import MessageFilter
from outbox.messages.models import FLOW, OutboxMessage
from outbox.processes.overview import why_missing
from outbox.replay_batches import actions, rules
from outbox.replay_batches.actions import Judged, act
from outbox.replay_batches.items import PreviewItem
from outbox.replay_batches.models import OF_MESSAGES, ReplayBatch, ReplayItem

Rows = Mapping[uuid.UUID, Any]  # DeadLetter or OutboxMessage by key
EFFECTS: dict[str, EffectState] = {
    "resolved": "resolved", "failed_again": "failed_again", "discarded": "discarded",
}  # fmt: skip
GONE = Effect("refused", "The letter is gone before its effect was seen.")
OPENED = Effect("discarded", "Somebody opened it again.")  # discarded on its way, and restored


class BatchOfLetters:
    """Requeue, discard, resolve, restore: their flows say what may be done, and what became of it."""

    gone = actions.GONE
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
        return actions.foresee(batch, rows, now)

    def judge(self, batch: ReplayBatch, rows: Rows, now: datetime) -> Judged:
        return actions.judge(batch, rows, now)

    def act(self, batch: ReplayBatch, ready: Sequence[Any], rows: Rows, now: datetime) -> Mapping[uuid.UUID, Effect]:
        return act(batch, ready, rows, now)

    def effects(self, items: Sequence[ReplayItem], now: datetime) -> Mapping[uuid.UUID, Effect]:
        """What became of these items' letters; those of which nobody knows are not in the answer."""
        ids = [item.letter for item in items]
        redelivery.look_after_these(ids, now)
        columns = ("id", "status", "evidence", "note", "successor")
        known = {letter.pk: letter for letter in DeadLetter.objects.filter(pk__in=ids).only(*columns)}
        found = {pk: _effect_of(known[pk]) if pk in known else GONE for pk in ids}
        return {pk: effect for pk, effect in found.items() if effect}

    def awaited(self, verb: str, source: str, step: str) -> bool:
        return actions.awaited(verb, source, step)

    def in_line(self, batch: ReplayBatch) -> bool:
        return actions.in_line(batch)

    def pace(self, kinds: Sequence[Sequence[Any]]) -> float:
        return actions.pace(kinds)

    def ahead(self, items: Sequence[ReplayItem], now: datetime) -> str:
        """What live traffic these, on their way, stand behind; empty where nobody says."""
        source = items[0].source
        letters = DeadLetter.objects.filter(pk__in=[item.letter for item in items if item.source == source])
        try:
            return letters_of(source).ahead(list(letters.defer("payload", "traceback", "headers")), now)
        except Refusal:
            return ""

    def holdup(self, verb: str, items: Sequence[ReplayItem], now: datetime) -> str:
        """Why these have to wait now; empty when they can go."""
        return next(filter(None, (actions.holdup(verb, letters, now) for letters in _by_source(items))), "")

    def standstill(self, items: Sequence[ReplayItem], now: datetime) -> str:
        """Why these, on their way, get no further, and what helps; empty where nobody says."""
        return next(filter(None, (actions.standstill(letters, now) for letters in _by_source(items))), "")


def _by_source(items: Sequence[ReplayItem]) -> Collection[list[DeadLetter]]:
    rows = DeadLetter.objects.filter(pk__in=[item.letter for item in items])
    by_source: dict[str, list[DeadLetter]] = {}
    for letter in rows.defer("payload", "traceback", "headers"):
        by_source.setdefault(letter.source, []).append(letter)
    return by_source.values()


def _effect_of(letter: DeadLetter) -> Effect | None:
    if letter.status == DeadLetter.Status.OPEN:
        return OPENED
    if letter.status not in EFFECTS:
        return None
    return Effect(EFFECTS[letter.status], letter.evidence or letter.note, successor=letter.successor)


class BatchOfMessages:
    """Resend: sent messages, each said once more by a new one, which is the successor of its item."""

    gone = "It is not kept any more, and its text is gone with it."
    copied: Mapping[str, Expression | F] = {
        "letter": F("pk"), "source": Value(FLOW), "step": F("channel"), "business_key": F("aggregate"),
    }  # fmt: skip

    def filter_of(self, batch: ReplayBatch) -> MessageFilter:
        return MessageFilter.of(batch.filter)

    def rows(self, batch: ReplayBatch) -> QuerySet:
        return self.filter_of(batch).rows()

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

    def in_line(self, batch: ReplayBatch) -> bool:
        return True

    def pace(self, kinds: Sequence[Sequence[Any]]) -> float:
        """Of the slowest of its channels; what is left of one that is gone is refused anyway."""
        rates = [known.rate() for _source, channel, _waits in kinds if (known := handlers().get(channel))]
        return min(filter(None, rates), default=rules.DEFAULT_RATE)

    def ahead(self, items: Sequence[ReplayItem], now: datetime) -> str:
        return ahead([item.successor for item in items if item.successor], now)

    def holdup(self, verb: str, items: Sequence[ReplayItem], now: datetime) -> str:
        return ChannelState.objects.why_closed({item.step for item in items}, now)

    def standstill(self, items: Sequence[ReplayItem], now: datetime) -> str:
        return self.holdup("resend", items, now) or why_missing({"relay_outbox": {item.step for item in items}}, now)


Subject = BatchOfLetters | BatchOfMessages
LETTERS, MESSAGES = BatchOfLetters(), BatchOfMessages()


def subject_of(verb: str) -> Subject:
    return MESSAGES if verb in OF_MESSAGES else LETTERS


def words_of(batch: ReplayBatch) -> str:
    """Its filter in words."""
    return subject_of(batch.verb).filter_of(batch).words()
