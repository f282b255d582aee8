"""Which tables of this app are partitioned by time, and what keeps a day of the overflow buffer."""

from __future__ import annotations

from datetime import UTC, datetime, time

from django.db.models import Q

from config.partitions import Keep, Partition, PartitionSpec
from throttler.lanes.models import Lane, LaneOwner, LanePartition

OVERFLOW = PartitionSpec(
    model="throttler.OverflowMessage",
    column="day",
    period="day",
    encoding="date",
    keep_days_setting="THROTTLER_BUFFER_DAYS",
    before_drop="throttler.partitioned.keep_what_waits",
    locks=("throttler.Lane", "throttler.LaneOwner", "throttler.LanePartition"),
)


# -- What keeps a day of the overflow buffer -----------------------------------------------------------------
# Lanes that wait since then, and owners whose last report is no newer.
def keep_what_waits(using: str, spec: PartitionSpec, partition: Partition) -> None:
    """Raise Keep while a lane of the read model may still read rows of this partition, or that is too old to tell."""
    if partition.upper is None:
        raise Keep("its end is unknown")
    waiting = Lane.objects.using(using).filter(Q(day__lt=partition.upper) | Q(day=None), backlog__gt=0)
    if lane := waiting.order_by("day", "id").first():
        since = f"since {lane.day}" if lane.day else "since an unknown day"
        raise Keep(f"{lane.customer_id} has had messages waiting in partition {lane.partition} {since}")
    # What was last reported before the day had ended knows nothing of what came after it.
    ended = datetime.combine(partition.upper, time(), UTC)
    if lane := Lane.objects.using(using).filter(backlog__gt=0, updated_at__lt=ended).first():
        raise Keep(f"{lane.customer_id} was last reported at {lane.updated_at:%F %H:%M}")
    # An owner may report itself while its lanes are refused or fail.
    if silent := LanePartition.objects.using(using).filter(updated_at__lt=ended).order_by("number").first():
        raise Keep(f"partition {silent.number} was last reported at {silent.updated_at:%F %H:%M}")
    _owners_are_newer(using, ended, spec.rows(using, partition).exists())


def _owners_are_newer(using: str, ended: datetime, holds_rows: bool) -> None:
    """Of owners that own the same partition only the one that reported last counts: others are gone."""
    owners = list(LaneOwner.objects.using(using).order_by("-updated_at"))
    if holds_rows and not owners:
        raise Keep("no owner of a lane has reported")
    known: set[int] = set()
    for owner in owners:
        if owner.updated_at < ended and not set(owner.partitions) <= known:
            raise Keep(f"owner {owner.name} last reported at {owner.updated_at:%F %H:%M}")
        known |= set(owner.partitions)
