"""Which groups a live batch works on."""

from __future__ import annotations

from outbox.replay.batches.models import LIVE, ReplayBatch

AT_WORK = (*LIVE, "holding", "verifying")


def groups_in_work() -> frozenset[int]:
    """Groups that a live batch was asked about; there are few batches, and fewer live ones."""
    found = ReplayBatch.objects.filter(state__in=AT_WORK).values_list("filter", flat=True)
    return frozenset(chosen["group"] for chosen in found if chosen.get("group") is not None)


def batches_of(group_id: int) -> list[ReplayBatch]:
    """The live batches about one group, newest first."""
    live = ReplayBatch.objects.filter(state__in=AT_WORK).order_by("-pk")
    return [batch for batch in live if batch.filter.get("group") == group_id]
