"""What must hold of replay batches: every pinned letter has one state, and the batch has counted it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count

from config.database.clock import database_now
from config.flows import Check
from outbox.bookkeeping.verify import OFFENDERS
from outbox.replay.batches.models import OUTCOMES, ReplayBatch, ReplayItem

SWEEPS = timedelta(days=2)  # a sweep that was killed is over when the daily round has come again
ENDED = (ReplayBatch.State.DONE, ReplayBatch.State.CANCELLED)


def batches_are_counted() -> Iterator[Check]:
    """Of batches whose items are still there: items and skipped are the pinned set, and counters a recount."""
    now = database_now()
    found: dict[int, Counter[str]] = defaultdict(Counter)
    counted = ReplayItem.objects.order_by().values_list("batch_id", "state").annotate(number=Count("id"))
    for batch_id, state, number in counted:
        found[batch_id][state] = number
    lost, wrong, unfit = [], [], []
    for batch in ReplayBatch.objects.order_by("pk"):
        items = found.pop(batch.pk, Counter())
        if why := _misfit(batch, items.total(), now):
            unfit.append({"batch": batch.pk, "state": batch.state, "why": why})
        if batch.items_gone_at is not None:
            continue
        if items.total() != batch.pinned:
            lost.append({"batch": batch.pk, "pinned": batch.pinned, "items": items.total()})
        kept = {name: getattr(batch, name) for name in OUTCOMES}
        if any(kept[name] != items[name] for name in OUTCOMES):
            wrong.append({"batch": batch.pk, "counted": kept, "items": dict(items)})
    # Nobody is asked what it pinned: there is no such batch.
    lost += [{"batch": pk, "pinned": 0, "items": found[pk].total()} for pk in sorted(found)]
    yield Check("every replay batch has an item for each letter it pinned", rows=lost[:OFFENDERS])
    yield Check("counters of replay batches = a recount of their items", rows=wrong[:OFFENDERS])
    yield Check("the state of every replay batch fits its times", rows=unfit[:OFFENDERS])


def _misfit(batch: ReplayBatch, items: int, now: datetime) -> str:
    """What contradicts the state of a batch; empty for nothing."""
    if (batch.finished_at is not None) is not (batch.state in ENDED):
        return "it has ended and not, by its state and its time"
    if batch.items_gone_at is None:
        return ""
    if batch.finished_at is None or batch.items_gone_at < batch.finished_at:
        return "its letters are called gone before its end"
    if items and batch.finished_at > now - timedelta(days=settings.DEAD_LETTER_RETENTION_DAYS):
        return "its letters are called gone, are there, and are not old enough"
    return "its letters are called gone and are there" if items and batch.items_gone_at < now - SWEEPS else ""
