"""Counting: pins the letters of a batch in one statement, then asks the flows about them, chunk by chunk."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from itertools import starmap
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import QuerySet, Value
from django.db.models.functions import Coalesce, Length

from config.database.clock import database_now
from config.telemetry.logs import log
from outbox.letters.filters import Filter
from outbox.letters.models import DeadLetter
from outbox.letters.queries import DeadLetterQuerySet
from outbox.replay.batches import deeds
from outbox.replay.batches.models import LEASE, ReplayBatch, ReplayItem
from outbox.replay.batches.outcomes import ItemOutcome, PreviewItem, write
from outbox.replay.batches.window import first_portion

COUNTING = ReplayBatch.State.COUNTING
JUDGED = ("eligible", "skipped")  # states of items whose turn has not come
COPIED = ("source", "step", "business_key")  # of the letter
MOST_REASONS = 50
OTHER = "for other reasons"


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
        kinds = [[source, step, deeds.awaited(batch.verb, source, step)] for source, step in _kinds_of(batch)]
        changes = {"pinned": pinned, "eligible": pinned, "pinned_at": now, "lease_until": now + LEASE}
        batch.change(kinds=kinds, **changes, **deeds.pace_for(batch, kinds))
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


def judge(batch_id: int, token: uuid.UUID) -> int:
    """Ask about the next chunk of a pinned batch; returns how many letters were judged, 0 at the end."""
    with transaction.atomic():
        batch = ReplayBatch.objects.held(batch_id, token, COUNTING)
        if batch is None:
            return 0
        items = _next_items(batch)
        now = database_now()
        if not items:
            return _finish(batch)
        letters = _between(batch, items).to_judge().in_bulk()
        verdicts = deeds.foresee(batch.verb, letters, now)
        outcomes = [_outcome(item, letters.get(item.letter), verdicts.get(item.letter, "")) for item in items]
        changed = [found for found in outcomes if found.state != found.item.state or found.note != found.item.note]
        write(changed, now)
        counts = Counter(found.state for found in outcomes) - Counter(item.state for item in items)
        fewer = Counter(item.state for item in items) - Counter(found.state for found in outcomes)
        counters = {name: getattr(batch, name) + counts[name] - fewer[name] for name in ("eligible", "skipped")}
        why = with_reasons(batch.skipped_why, (found.note for found in outcomes if found.state == "skipped"))
        batch.change(**counters, skipped_why=why, judged_to=items[-1].letter, lease_until=now + LEASE)
    return len(items)


def _next_items(batch: ReplayBatch) -> Sequence[PreviewItem]:
    """Behind those that were judged, as many as may be in memory; one query a state, because the index begins with it."""
    most = 2 * settings.REPLAY_CHUNK  # asking writes little, and locks nothing that traffic waits for
    found: list[PreviewItem] = []
    for state in JUDGED:
        rows = ReplayItem.objects.of(batch).filter(state=state).oldest_first()
        rows = rows.filter(letter__gt=batch.judged_to) if batch.judged_to else rows
        found += starmap(PreviewItem, rows.values_list(*PreviewItem._fields)[:most])
    return first_portion(sorted(found, key=lambda item: item.letter)[:most])


def _between(batch: ReplayBatch, items: Sequence[PreviewItem]) -> DeadLetterQuerySet:
    """The letters between the first of these items and the last one.

    Through the items: MySQL needs four times as long for a list of a thousand keys, most of it before it reads a row.
    """
    ours = ReplayItem.objects.of(batch).filter(state__in=JUDGED, letter__range=(items[0].letter, items[-1].letter))
    return DeadLetter.objects.filter(pk__in=ours.values("letter"))


def _outcome(item: PreviewItem, letter: DeadLetter | None, why_not: str) -> ItemOutcome:
    if letter is None:
        why_not = deeds.GONE
    return ItemOutcome(item, "skipped", why_not) if why_not else ItemOutcome(item, "eligible")


def with_reasons(known: dict[str, int], reasons: Any) -> dict[str, int]:
    """The number of skipped letters by reason; beyond fifty reasons in one more."""
    found = Counter(known)
    for why in reasons:
        found[why if why in found or len(found) < MOST_REASONS else OTHER] += 1
    return dict(found)


def _finish(batch: ReplayBatch) -> int:
    """The preview stands; what a terminal asked for waits for nobody."""
    now = database_now()
    ready: dict[str, Any] = {"state": ReplayBatch.State.PREVIEWED, "previewed_at": now}
    if batch.automatic:
        ready |= {"state": ReplayBatch.State.HOLDING, "hold_until": now}
    return batch.change(**ready)


# What makes a worker judge a pinned batch anew.
AGAIN: dict[str, Any] = {"state": COUNTING, "judged_to": None, "skipped_why": {}, "previewed_at": None}
