"""What every flow's picture shares: open dead letters, and how far its consumers have come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Sum
from django.urls import reverse

from config import metrics, words
from config.flows import Need, Reading
from outbox import counters
from outbox.models import FailureGroup, Watermark

UNSEEN = timedelta(seconds=30)
BEHIND = timedelta(seconds=60)
LONG = timedelta(minutes=5)
MOST_GROUPS = 3
MOST_STOPPED = 2


# -- Dead letters -----------------------------------------------------------------------------------------
def open_letters(sources: Sequence[str]) -> dict[str, int]:
    """`{source: open letters}`, from the counts that groups keep."""
    found = (
        FailureGroup.objects.filter(source__in=sources)
        .values_list("source")
        .annotate(total=Sum("open_count"))
    )
    return {**dict.fromkeys(sources, 0), **{source: int(total) for source, total in found}}


def letters_last_hour(
    sources: Sequence[str], now: datetime, kinds: Sequence[str] = ("parked", "late")
) -> int:
    """Letters of the last hour, from the counters that a flow keeps of what it buries."""
    return sum(sum(counters.history(source, name, now, 60)) for source in sources for name in kinds)


def letter_needs(sources: Sequence[str], urgent: Sequence[str] = ()) -> Iterator[Need]:
    """One line per failure group, the rest in one more; a step in `urgent` is one for which people wait."""
    groups = list(FailureGroup.objects.needing_work().filter(source__in=sources).order_by("-last_seen")[:100])
    groups.sort(key=lambda group: group.step not in urgent)
    for group in groups[:MOST_GROUPS]:
        yield _need_of_group(group, group.step in urgent)
    rest = groups[MOST_GROUPS:]
    if rest:
        largest = max(rest, key=lambda group: group.open_count)
        yield Need(
            urgency="soon",
            title=words.plural(len(rest), "more failure group", "more failure groups") + " with open letters",
            why=f"The largest is “{largest.title}”, {words.plural(largest.open_count, 'letter', 'letters')}.",
            url=reverse("admin:outbox_failuregroup_changelist"),
            lever="Open list",
            amount=sum(group.open_count for group in rest),
            unit="dead letters",
            since=min(group.first_seen for group in rest),
            rank=3,
        )


def _need_of_group(group: FailureGroup, urgent: bool) -> Need:
    return Need(
        urgency="now" if urgent else "soon",
        title=group.title,
        why=f"{group.source}, failed in {group.step}. "
        + (
            "They wait until they are requeued or discarded; later ones go on."
            if urgent
            else "Requeue, resolve or discard them."
        ),
        url=reverse("admin:outbox_failuregroup_change", args=[group.pk]),
        lever="Open group",
        amount=group.open_count,
        unit="dead letter" if group.open_count == 1 else "dead letters",
        since=group.first_seen,
        rank=1 if urgent else 2,
    )


# -- Positions ---------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Reach:
    """How far the consumers of one group have come, over all partitions of some topics."""

    rows: Sequence[Watermark]
    now: datetime

    @classmethod
    def of(cls, group: str, topics: Sequence[str], now: datetime) -> Reach:
        return cls(
            list(Watermark.objects.filter(group=group, topic__in=topics).order_by("topic", "partition")), now
        )

    @property
    def lag(self) -> int:
        return sum(lag_of(row) for row in self.rows)

    @property
    def behind(self) -> timedelta | None:
        """Since when something in the log has not been read; None: not measured."""
        times = [row.caught_up_at for row in self.rows if row.caught_up_at]
        return max(timedelta(0), self.now - min(times)) if times else None

    @property
    def seen(self) -> datetime | None:
        return max((row.updated_at for row in self.rows), default=None)

    @property
    def unseen(self) -> bool:
        return self.seen is not None and self.now - self.seen > UNSEEN

    @property
    def stopped(self) -> list[Watermark]:
        return [row for row in self.rows if row.alarm]


def lag_of(row: Watermark) -> int:
    return max(0, row.end_offset - row.next_offset)


def position_needs(reach: Reach, worker: str) -> Iterator[Need]:
    """Stopped partitions, and a worker that does not report any more."""
    yield from _stopped_needs(reach.stopped)
    if reach.unseen and reach.seen and len(reach.stopped) < len(reach.rows):
        silent = reach.now - reach.seen
        yield Need(
            urgency="now" if silent > LONG else "soon",
            title=f"{worker} does not report",
            why="What arrives waits in Kafka and is read when the worker runs again. Nothing is lost.",
            url=reverse("admin:outbox_watermark_changelist"),
            lever="Show positions",
            amount=reach.lag,
            unit="records behind",
            since=reach.seen,
            rank=1,
        )


def _stopped_needs(rows: Sequence[Watermark]) -> Iterator[Need]:
    for row in rows[:MOST_STOPPED]:
        yield Need(
            urgency="now",
            title=f"{row.topic}, partition {row.partition} is stopped",
            why=row.alarm,
            url=reverse("admin:outbox_watermark_change", args=[row.pk]),
            lever="Show why",
            amount=lag_of(row),
            unit="records behind",
            since=row.updated_at,
            rank=0,
        )
    rest = rows[MOST_STOPPED:]
    if rest:
        yield Need(
            urgency="now",
            title=f"{words.plural(len(rest), 'more partition is', 'more partitions are')} stopped",
            why=rest[0].alarm,
            url=reverse("admin:outbox_watermark_changelist") + "?state=stopped",
            lever="Show them",
            amount=sum(lag_of(row) for row in rest),
            unit="records behind",
            since=min(row.updated_at for row in rest),
            rank=0,
        )


# -- Gauges ------------------------------------------------------------------------------------------------
def gauges(sources: Sequence[str], reach: Reach) -> Iterator[Reading]:
    """The same numbers for /metrics."""
    for source, number in open_letters(sources).items():
        yield Reading(metrics.LETTERS_OPEN, number, {"source": source})
    for row in reach.rows:
        labels = {"group": row.group, "topic": row.topic, "partition": str(row.partition)}
        yield Reading(metrics.CONSUMER_LAG_RECORDS, lag_of(row), labels)
        yield Reading(metrics.PARTITION_STOPPED, bool(row.alarm), labels)
        if row.caught_up_at:
            seconds = max(0.0, (reach.now - row.caught_up_at).total_seconds())
            yield Reading(metrics.CONSUMER_LAG_SECONDS, seconds, labels)
