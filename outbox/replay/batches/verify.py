"""What must hold of replay batches: every pinned letter has one state, and the batch has counted it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from django.db.models import Count

from config.flows import Check
from outbox.bookkeeping.verify import OFFENDERS
from outbox.replay.batches.models import OUTCOMES, ReplayBatch, ReplayItem


def batches_are_counted() -> Iterator[Check]:
    """Of batches whose items are still there: items and skipped are the pinned set, and counters a recount."""
    found: dict[int, Counter[str]] = defaultdict(Counter)
    counted = ReplayItem.objects.order_by().values_list("batch_id", "state").annotate(number=Count("id"))
    for batch_id, state, number in counted:
        found[batch_id][state] = number
    lost, wrong = [], []
    for batch in ReplayBatch.objects.filter(items_gone_at=None).order_by("pk"):
        items = found.pop(batch.pk, Counter())
        if items.total() != batch.pinned:
            lost.append({"batch": batch.pk, "pinned": batch.pinned, "items": items.total()})
        kept = {name: getattr(batch, name) for name in OUTCOMES}
        if any(kept[name] != items[name] for name in OUTCOMES):
            wrong.append({"batch": batch.pk, "counted": kept, "items": dict(items)})
    yield Check("every replay batch has an item for each letter it pinned", rows=lost[:OFFENDERS])
    yield Check("counters of replay batches = a recount of their items", rows=wrong[:OFFENDERS])
