"""Which groups a live batch works on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from uuid import UUID

from django.db.models import Exists, OuterRef, Q

from config.uuid7 import smallest_uuid7
from outbox.groups.models import FailureGroup
from outbox.letters.filters import STARTS, Filter
from outbox.letters.models import DeadLetter
from outbox.replay.batches.models import LIVE, ReplayBatch

AT_WORK = (*LIVE, "holding", "verifying")
WORKED_ON = ("open", "requeued")
MOST_IDS = 1000  # letters chosen one by one that are looked at


def groups_in_work() -> frozenset[int]:
    """Groups of which a live batch has pinned letters: the group it was asked about, or those its filter reaches.

    There are few batches, and fewer live ones; whatever they hold, these are at most three queries.
    """
    batches = list(ReplayBatch.objects.filter(state__in=AT_WORK))
    asked = {batch.filter["group"] for batch in batches if batch.filter.get("group") is not None}
    reached = [_reached_by(batch) for batch in batches if _is_wide(batch)]
    wide = FailureGroup.objects.workable().filter(reduce(or_, reached)) if reached else FailureGroup.objects.none()
    chosen = DeadLetter.objects.filter(pk__in=_chosen(batches)).order_by().values_list("group_id", flat=True)
    return frozenset({*asked, *wide.values_list("pk", flat=True), *chosen.distinct()})


def batches_of(group: FailureGroup) -> list[ReplayBatch]:
    """The live batches that have pinned letters of one group, newest first."""
    batches = list(ReplayBatch.objects.filter(state__in=AT_WORK).order_by("-pk"))
    oldest = _oldest_letter(group.pk) if any(map(_is_wide, batches)) else None
    wide = {batch.pk for batch in batches if _is_wide(batch) and oldest and _reaches(batch, group.source, oldest)}
    letters = DeadLetter.objects.filter(pk__in=_chosen(batches), group_id=group.pk)
    chosen = set(letters.values_list("pk", flat=True))
    return [
        batch
        for batch in batches
        if batch.filter.get("group") == group.pk or batch.pk in wide or chosen.intersection(_chosen([batch]))
    ]


def _is_wide(batch: ReplayBatch) -> bool:
    """Whether it takes open letters of any group that its filter reaches."""
    return STARTS[batch.verb] == "open" and not {"group", "ids"} & batch.filter.keys()


def _chosen(batches: Iterable[ReplayBatch]) -> Sequence[UUID]:
    """Letters that somebody chose one by one."""
    return [UUID(pk) for batch in batches for pk in batch.filter.get("ids", ())][:MOST_IDS]


def _end(batch: ReplayBatch) -> UUID | None:
    """The key up to which it has pinned: their ids rise with the time of arrival."""
    before = Filter.of(batch.filter).until()
    ends = [batch.cut_off, smallest_uuid7(int(before.timestamp() * 1000)) if before else None]
    return min(filter(None, ends), default=None)


def _reached_by(batch: ReplayBatch) -> Q:
    """Groups with a letter that it has pinned; their index says so, without reading a letter."""
    letters = DeadLetter.objects.filter(group_id=OuterRef("pk"), status__in=WORKED_ON, pk__lte=_end(batch))
    return Q(Exists(letters), source__in=batch.sources)


def _reaches(batch: ReplayBatch, source: str, oldest: UUID) -> bool:
    end = _end(batch)
    return source in batch.sources and end is not None and oldest <= end


def _oldest_letter(group_id: int) -> UUID | None:
    """Of those that are open or on their way: one look into the index for each."""
    letters = DeadLetter.objects.of_group(group_id).order_by("pk").values_list("pk", flat=True)
    return min(filter(None, (letters.filter(status=status).first() for status in WORKED_ON)), default=None)
