"""Counting: pins the letters of a batch in one statement, then asks the flows about them, chunk by chunk."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import starmap, takewhile
from typing import NamedTuple

from django.conf import settings
from django.db import connection, transaction
from django.db.models import QuerySet, Value
from django.db.models.functions import Coalesce, Length

from config.database.clock import database_now
from config.database.prefetch import Ahead, reading_ahead
from config.telemetry.logs import log
from outbox.letters.filters import Filter
from outbox.letters.models import DeadLetter, DeadLetterQuerySet
from outbox.replay_batches import actions
from outbox.replay_batches.items import ItemOutcome, PreviewItem, first_portion, with_reasons, write
from outbox.replay_batches.models import LEASE, ReplayBatch, ReplayItem

COUNTING = ReplayBatch.State.COUNTING
JUDGED = ("eligible", "skipped")  # states of items whose turn has not come
COPIED = ("source", "step", "business_key")  # of the letter
CHUNKS = 20  # of a step: a worker looks around in between
IN_MEMORY = 2  # portions: one is judged, one is read


class JudgedTo(NamedTuple):
    """How far a preview has come."""

    batch_id: int
    letter: uuid.UUID | None  # the last one; None at the beginning

    @classmethod
    def of(cls, batch: ReplayBatch) -> JudgedTo:
        return cls(batch.pk, batch.judged_to)


class Portion(NamedTuple):
    """Items, oldest letter first, and their letters as far as they are still there."""

    items: Sequence[PreviewItem]
    letters: Mapping[uuid.UUID, DeadLetter]


Portions = Ahead[JudgedTo, Portion]


def pin(batch_id: int, token: uuid.UUID) -> int:
    """Write an item for each letter that the filter finds up to the cut-off, once; returns how many.

    One statement: whatever arrives or is closed meanwhile, the set is the one of that moment.
    """
    with transaction.atomic():
        batch = ReplayBatch.objects.held(batch_id, token, COUNTING)
        if batch is None or batch.pinned_at:
            return 0
        letters = Filter.of(batch.filter).letters(batch.verb).filter(pk__lte=batch.cut_off)
        pinned = _insert_items(batch, letters)
        now = database_now()
        kinds = [[source, step, actions.awaited(batch.verb, source, step)] for source, step in _kinds_of(batch)]
        changes = {"pinned": pinned, "eligible": pinned, "pinned_at": now, "lease_until": now + LEASE}
        batch.change(kinds=kinds, **changes, **actions.pace_for(batch, kinds))
    log.info("replay_pinned", batch=batch_id, letters=pinned)
    return pinned


def _insert_items(batch: ReplayBatch, letters: QuerySet) -> int:
    computed = {
        "to_batch": Value(batch.pk),
        "as_state": Value("eligible"),
        "as_note": Value(""),
        "as_canary": Value(False),
        "as_size": Coalesce(Length("payload"), 0),
    }
    chosen = letters.annotate(**computed).order_by("pk").values_list("to_batch", "pk", *COPIED, *list(computed)[1:])
    select, params = chosen.query.sql_with_params()
    quote = connection.ops.quote_name
    columns = ", ".join(map(quote, ["batch_id", "letter", *COPIED, "state", "note", "canary", "size"]))
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {quote(ReplayItem._meta.db_table)} ({columns}) {select}", params)
        return int(cursor.rowcount)


def _kinds_of(batch: ReplayBatch) -> QuerySet:
    """(source, step) of its letters."""
    return ReplayItem.objects.of(batch).order_by().values_list("source", "step").distinct()


def judge_chunks(batch_id: int, token: uuid.UUID) -> int:
    """Ask about the next chunks of a pinned batch; returns how many letters were judged, 0 at the end."""
    with reading_ahead(portion_behind) as portions:
        return sum(takewhile(bool, (judge(batch_id, token, portions) for _ in range(CHUNKS))))


def judge(batch_id: int, token: uuid.UUID, portions: Portions) -> int:
    """Ask about the next chunk, in a transaction of its own."""
    with transaction.atomic():
        batch = ReplayBatch.objects.held(batch_id, token, COUNTING)
        if batch is None:
            return 0
        items, letters = portions.take(JudgedTo.of(batch))
        now = database_now()
        if not items:
            _finish(batch)
            return 0
        portions.begin(JudgedTo(batch.pk, items[-1].letter))
        verdicts = actions.foresee(batch, letters, now)
        outcomes = [_outcome(item, letters.get(item.letter), verdicts.get(item.letter, "")) for item in items]
        changed = [found for found in outcomes if found.state != found.item.state or found.note != found.item.note]
        write(changed, now)
        counts = Counter(found.state for found in outcomes) - Counter(item.state for item in items)
        fewer = Counter(item.state for item in items) - Counter(found.state for found in outcomes)
        counters = {name: getattr(batch, name) + counts[name] - fewer[name] for name in ("eligible", "skipped")}
        why = with_reasons(batch.skipped_why, (found.note for found in outcomes if found.state == "skipped"))
        batch.change(**counters, skipped_why=why, judged_to=items[-1].letter, lease_until=now + LEASE)
    return len(items)


def portion_behind(so_far: JudgedTo) -> Portion:
    """What is judged next, as much as may be in memory beside another portion; nothing is locked."""
    items = _items(so_far)
    return Portion(items, _between(so_far.batch_id, items).to_judge().in_bulk() if items else {})


def _items(so_far: JudgedTo) -> Sequence[PreviewItem]:
    """One query a state, because the index begins with it."""
    most = 2 * settings.REPLAY_CHUNK  # asking writes little, and locks nothing that traffic waits for
    found: list[PreviewItem] = []
    for state in JUDGED:
        rows = ReplayItem.objects.filter(batch_id=so_far.batch_id, state=state).oldest_first()
        rows = rows.filter(letter__gt=so_far.letter) if so_far.letter else rows
        found += starmap(PreviewItem, rows.values_list(*PreviewItem._fields)[:most])
    items = sorted(found, key=lambda item: item.letter)[:most]
    return first_portion(items, IN_MEMORY)


def _between(batch_id: int, items: Sequence[PreviewItem]) -> DeadLetterQuerySet:
    """The letters between the first of these items and the last one.

    Through the items: MySQL needs four times as long for a list of a thousand keys, most of it before it reads a row.
    """
    between = items[0].letter, items[-1].letter
    ours = ReplayItem.objects.filter(batch_id=batch_id, state__in=JUDGED, letter__range=between)
    return DeadLetter.objects.filter(pk__in=ours.values("letter"))


def _outcome(item: PreviewItem, letter: DeadLetter | None, why_not: str) -> ItemOutcome:
    if letter is None:
        why_not = actions.GONE
    return ItemOutcome(item, "skipped", why_not) if why_not else ItemOutcome(item, "eligible")


def _finish(batch: ReplayBatch) -> None:
    """The preview stands; what a terminal asked for waits for nobody."""
    now = database_now()
    ready: dict[str, object] = {"state": ReplayBatch.State.PREVIEWED, "previewed_at": now}
    if batch.automatic:
        ready |= {"state": ReplayBatch.State.HOLDING, "hold_until": now}
    batch.change(**ready)


# What makes a worker judge a pinned batch anew.
AGAIN: dict[str, object] = {"state": COUNTING, "judged_to": None, "skipped_why": {}, "previewed_at": None}
