"""The read model of the lanes: owners write it each second; pages, forecasts, `verify` and retention read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.db import IntegrityError, models, transaction
from django.db.models import Exists, F, OuterRef, Q

from config.database.queries import batched, delete_in_chunks
from config.database.retry import is_duplicate
from config.database.upsert import Upsert, new, timestamp_text
from config.kafka.positions import LogEnd
from config.payload import as_json
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import FlowMinute, Watermark
from throttler.lanes.models import CustomerPeriod, Lane, LaneOwner, LanePartition
from throttler.lanes.state import LaneState
from throttler.limits.limiter import to_plain
from throttler.messages import moment_of

# -- One transaction a partition, each second ----------------------------------------------------------------
FLOW = "throttler"
CHUNK = 1000  # rows of a statement
SILENT = timedelta(seconds=60)  # after which the group may have been forgotten, and its generations counted anew
PERIOD = timedelta(minutes=5)
MINUTES = int(PERIOD / timedelta(minutes=1))

LANES = Upsert(
    Lane,
    columns="customer_id backlog waits first drained seen day newest oldest_at limiter",
    constants="partition topic_id updated_at",
    key="partition customer_id",
    update=new("topic_id backlog waits first drained seen day newest oldest_at limiter updated_at"),
)
PERIODS = Upsert(
    CustomerPeriod,
    columns="customer_id live buffered drained expired backlog",
    constants="partition start",
    key="customer_id partition start",
    update={
        **{name: f"old.{name} + new.{name}" for name in ("live", "buffered", "drained", "expired")},
        "backlog": "new.backlog",
    },
)
POSITIONS = Upsert(
    Watermark,
    columns="topic partition topic_id next_offset end_offset caught_up_at",
    constants="group alarm updated_at",
    key="group topic partition",
    # The partition's own row keeps owners of the past out; a reset goes back.
    update={
        "end_offset": "CASE WHEN new.end_offset = 0 THEN old.end_offset ELSE new.end_offset END",
        "caught_up_at": "CASE WHEN new.caught_up_at IS NULL THEN old.caught_up_at ELSE new.caught_up_at END",
        **new("topic_id next_offset alarm updated_at"),
    },
)


NAMES = Upsert(
    LaneOwner,
    columns="name transactions process",
    constants="partitions starts updated_at",
    key="name",
    # MySQL assigns from left to right: what is compared changes last.
    update={
        "starts": "CASE WHEN old.process = new.process THEN old.starts ELSE old.starts + 1 END",
        **new("transactions updated_at process"),
    },
)


@dataclass(frozen=True, slots=True)
class Recalled:
    """What is known of a partition's past: totals by the names of `engine.partition.PATHS`, and how far it was decided."""

    totals: Mapping[str, int]
    topic_id: str = ""
    upto: int = 0

    def decided(self, topic_id: str) -> int:
        """The first offset of this topic that was not decided."""
        return self.upto if self.topic_id == topic_id else 0


@dataclass(frozen=True, slots=True)
class LaneSnapshot:
    """A lane after a committed transaction; times are microseconds since 1970.

    `oldest_us`: when the oldest message that waits was created, None: nobody has read it yet. `waits`: how
    many of the backlog the store does not have yet. `limiter`: `{"tat": …, "quota": …}` as in the changelog.
    """

    customer_id: str
    backlog: int
    first: int
    drained: int
    seen: int
    day: date | None
    oldest_us: int | None
    limiter: Mapping[str, object]
    waits: int = 0
    newest: date | None = None

    @classmethod
    def of(cls, lane: LaneState, oldest_us: int | None) -> LaneSnapshot:
        """The lane as it is now."""
        tat, quota = to_plain(lane.limiter)
        return cls(
            lane.customer, lane.backlog, lane.first, lane.drained, lane.seen, lane.day,
            oldest_us, {"tat": tat, "quota": quota}, lane.waits, lane.newest,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class CountsSnapshot:
    """What a customer's messages became since the last snapshot that was written, and how many wait now."""

    customer_id: str
    live: int = 0
    buffered: int = 0
    drained: int = 0
    expired: int = 0
    backlog: int = 0


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """A partition after a committed transaction: never one in hand, which may still be refused.

    `lanes` are those that changed since the last snapshot that was written and have a backlog, or had one within the
    hour, also when the owner has forgotten them since: without them what they had seems to wait. `whole`: every lane
    that has a backlog is among them, so that whatever else the read model knows waits no more; after each one
    that failed, as the database may have come back from a backup. `complete`: the same, in the first one after the
    lanes were restored, until `write_read_model` has returned True once; only it takes a partition over from another
    process of this epoch. `read`: the first offset that has not come since the owner began, None: all below `decided`
    have; rows between the two may be missing in the store and are not in `waits`. `process`: a random id of this
    process, as one that comes back under its name has the epoch of the one before. `totals` are absolute, by the names
    of `engine.partition.PATHS`. `counts` are of customers over their rate within twelve hours. `reach`: how far the log
    was seen to reach.
    """

    number: int
    topic_id: str
    epoch: int
    position: int
    decided: int
    totals: Mapping[str, int]
    lanes: Sequence[LaneSnapshot] = ()
    complete: bool = False
    counts: Sequence[CountsSnapshot] = ()
    whole: bool = False
    process: str = ""
    read: int | None = None
    reach: LogEnd | None = None


def write_read_model(partition: PartitionSnapshot, group: str, topic: str, now: datetime) -> bool:
    """Write one partition in one transaction; `group` and `topic` as the broker calls them, `now` of the database.

    False: a newer owner has written meanwhile, and nothing was changed. A snapshot that is late or lost costs readers
    their freshness, never a message: an owner reads back only `known_of` and `is_superseded`.
    """
    with transaction.atomic():
        if not _take(partition, now):
            return False
        if partition.complete or partition.whole:
            _empty_all(partition, now)
        _write_lanes(partition, now)
        _write_counts(partition, now)
        _write_position(partition, group, topic, now)
        # Last: the minute's rows are shared by the owners of all partitions.
        totals = {(FLOW, str(partition.number), name): total for name, total in partition.totals.items()}
        counters.store_totals(totals, now)
    return True


def known_of(number: int) -> Recalled:
    """What the read model knows of a partition."""
    row = LanePartition.objects.filter(pk=number).first()
    totals = counters.by_scope(FLOW).get(str(number), {})
    return Recalled(totals, row.topic_id, row.decided) if row else Recalled(totals)


def is_superseded(number: int, epoch: int, process: str, now: datetime) -> bool:
    """Whether another owner has reported the partition since this process had it, in generation `epoch`.

    Then this process slept or lost its name, and may not speak for the partition any more. If not, nobody reports
    it before the caller's transaction has ended: what that says was said first, or never.
    """
    row = LanePartition.objects.filter(pk=number)
    row.select_for_update().first()
    named = LaneOwner.objects.filter(process=OuterRef("process")).exclude(process="")
    newer = Q(epoch__gt=epoch) | (Q(epoch=epoch) & ~Q(process=process) & Exists(named))
    return row.filter(newer, updated_at__gte=now - SILENT).exists()


def take_name(name: str, transactions: bool, now: datetime, process: str = "") -> None:
    """Called before a process joins the group: from now on who had the name before can neither report itself nor its lanes."""
    NAMES.run([(name, int(transactions), process)], {"partitions": "[]", "starts": 1, "updated_at": now})


def report_owner(name: str, partitions: Iterable[int], transactions: bool, now: datetime, process: str = "") -> bool:
    """A process works: what it owns, and whether it uses transactions. `process` tells those of one name apart.

    False: another process has the name and has reported within a minute; after that its row may be that of a backup.
    """
    mine = Q(process=process) | Q(updated_at__lt=now - SILENT)
    values = {
        "partitions": sorted(partitions), "transactions": transactions, "process": process, "updated_at": now,
    }  # fmt: skip
    owner = LaneOwner.objects.filter(pk=name)
    if owner.filter(mine).update(**values):
        return True
    return not owner.exists() and create_first(LaneOwner, name=name, **values)


def _take(partition: PartitionSnapshot, now: datetime) -> bool:
    """Update the partition's row, whose lock keeps other owners out until the transaction ends; False: one is newer."""
    values = {
        "topic_id": partition.topic_id, "epoch": partition.epoch, "position": partition.position,
        "decided": partition.decided, "read": partition.decided if partition.read is None else partition.read,
        "process": partition.process, "updated_at": now,
    }  # fmt: skip
    mine = Q(epoch__lt=partition.epoch) | Q(epoch=partition.epoch, process=partition.process)
    if partition.complete:
        # The epoch alone does not tell who is newer: a process that came back under its name keeps it, and a group
        # that was forgotten counts from 1 again. A process that was frozen while it restored stays out: the one that
        # has its name now has reported meanwhile.
        named = LaneOwner.objects.filter(process=OuterRef("process")).exclude(process="")
        mine |= Q(~Exists(named), epoch=partition.epoch)
        # A row of the future was written before the database's clock went back: whoever lives has reported again since.
        mine |= Q(updated_at__lt=now - SILENT) | Q(updated_at__gt=now + SILENT)
    row = LanePartition.objects.filter(pk=partition.number)
    if row.filter(mine).update(**values):
        return True
    # Where another owner is first, who is newer shows in a second.
    return not row.exists() and create_first(LanePartition, number=partition.number, **values)


def create_first(model: type[models.Model], **values: object) -> bool:
    """Insert a row; False: somebody else was first."""
    try:
        with transaction.atomic():
            model._default_manager.create(**values)
    except IntegrityError as error:
        if not is_duplicate(error):
            raise
        return False
    return True


def _empty_all(partition: PartitionSnapshot, now: datetime) -> None:
    """Empty every lane: those that wait are written right after this, the others were drained unreported."""
    rest = Lane.objects.filter(partition=partition.number, backlog__gt=0)
    rest.update(
        backlog=0, waits=0, drained=F("seen"), day=None, newest=None, oldest_at=None,
        topic_id=partition.topic_id, updated_at=now,
    )  # fmt: skip


def _write_lanes(partition: PartitionSnapshot, now: datetime) -> None:
    constants = {"partition": partition.number, "topic_id": partition.topic_id, "updated_at": now}
    rows = [_lane_row(lane) for lane in sorted(partition.lanes, key=lambda lane: lane.customer_id)]
    for chunk in batched(rows, CHUNK):
        LANES.run(chunk, constants)


def _lane_row(lane: LaneSnapshot) -> tuple[object, ...]:
    return (
        lane.customer_id, lane.backlog, lane.waits, lane.first, lane.drained, lane.seen,
        lane.day and lane.day.isoformat(), lane.newest and lane.newest.isoformat(),
        _moment(lane.oldest_us if lane.backlog else None), as_json(lane.limiter),
    )  # fmt: skip


def _moment(us: int | None) -> str | None:
    return None if us is None else timestamp_text(moment_of(us))


def _write_counts(partition: PartitionSnapshot, now: datetime) -> None:
    rows = sorted(
        (one.customer_id, one.live, one.buffered, one.drained, one.expired, one.backlog) for one in partition.counts
    )
    for chunk in batched(rows, CHUNK):
        PERIODS.run(chunk, {"partition": partition.number, "start": period_of(now)})


def period_of(now: datetime) -> datetime:
    """When the five minutes around a moment began."""
    return now.replace(minute=now.minute - now.minute % MINUTES, second=0, microsecond=0)


def _write_position(partition: PartitionSnapshot, group: str, topic: str, now: datetime) -> None:
    """In one row, as it is written each second; what is reported runs, so it has no alarm."""
    reach = partition.reach or LogEnd(0, None)
    caught_up = timestamp_text(reach.caught_up_at) if reach.caught_up_at else None
    row = (topic, partition.number, partition.topic_id, partition.position, reach.end_offset, caught_up)
    POSITIONS.run([row], {"group": group, "alarm": "", "updated_at": now})


# -- Deletes what nobody needs any more ----------------------------------------------------------------------
EMPTY_FOR = timedelta(hours=1)
MINUTES_KEPT = 24 * 60
PERIODS_KEPT = timedelta(days=7)
GONE_FOR = timedelta(days=1)


def sweep(now: datetime) -> int:
    """Delete in chunks; returns how many rows went. Safe beside owners: a lane that fills again is inserted again."""
    return (
        delete_in_chunks(Lane.objects.filter(backlog=0, updated_at__lt=now - EMPTY_FOR))
        + delete_in_chunks(CustomerPeriod.objects.filter(start__lt=now - PERIODS_KEPT))
        + delete_in_chunks(FlowMinute.objects.filter(flow=FLOW, minute__lt=counters.minute_of(now) - MINUTES_KEPT))
        + _sweep_owners(now)
    )


def _sweep_owners(now: datetime) -> int:
    """Those that are silent for a day, and whose partitions somebody reports who is not."""
    gone = now - GONE_FOR
    reported = {number for owner in LaneOwner.objects.filter(updated_at__gte=gone) for number in owner.partitions}
    silent = LaneOwner.objects.filter(updated_at__lt=gone)
    ids = [owner.pk for owner in silent if set(owner.partitions) <= reported]
    # Whoever reports meanwhile stays.
    return silent.filter(pk__in=ids).delete()[0] if ids else 0
