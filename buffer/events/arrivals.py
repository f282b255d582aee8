"""What arrives: which of two deliveries of an order is newer, what orders add to their bucket, and how buckets are counted anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import NamedTuple

from buffer.events.models import Bucket, BufferedEvent
from buffer.streams import Stream
from config.database.queries import batched
from config.database.upsert import Upsert, new, timestamp_text
from config.kafka import topic_name

OrderKey = tuple[int, str, str]  # month, order, location


class Position(NamedTuple):
    """A record's place; offsets compare only within one partition of one incarnation of a topic."""

    topic_id: str
    partition: int
    offset: int
    timestamp: int

    def newer_than(self, other: Position) -> bool:
        """Elsewhere the record timestamp decides, then the partition, so that every order of arrival agrees."""
        if (self.topic_id, self.partition) == (other.topic_id, other.partition):
            return self.offset > other.offset
        return (self.timestamp, self.partition) > (other.timestamp, other.partition)


NEWER = (
    "(CASE WHEN old.topic_id = new.topic_id AND old.source_partition = new.source_partition "
    "THEN old.source_offset < new.source_offset "
    "ELSE old.source_timestamp < new.source_timestamp OR "
    "(old.source_timestamp = new.source_timestamp AND old.source_partition < new.source_partition) END)"
)


CHUNK = 500
NEW_BUCKET = {"sequence": 0, "urged": "", "held": False}


@cache
def _arrivals(max_batch: int) -> Upsert:
    """The statement that adds arrivals to buckets and decides when each is due."""
    return Upsert(
        Bucket,
        columns="location_id open_count source_partition due_at",
        constants="stream topic sequence first_arrival last_arrival idle_at cap_at urged held",
        key="stream location_id",
        # MySQL assigns from left to right: what reads the old count comes before the count.
        update={
            # An arrival leaves an earlier look alone: the flusher then finds the bucket not idle and puts it
            # off. The index on due_at changes once per idle period instead of with every batch.
            "due_at": "CASE WHEN old.held THEN NULL "
            f"WHEN old.urged = '' AND old.open_count + new.open_count >= {int(max_batch)} "
            "AND (old.due_at IS NULL OR old.due_at > new.last_arrival) THEN new.last_arrival "
            "WHEN old.due_at IS NULL THEN new.due_at ELSE old.due_at END",
            "first_arrival": "CASE WHEN old.open_count > 0 THEN old.first_arrival ELSE new.first_arrival END",
            "cap_at": "CASE WHEN old.open_count > 0 THEN old.cap_at ELSE new.cap_at END",
            **new("last_arrival idle_at topic source_partition"),
            "open_count": "old.open_count + new.open_count",
        },
    )


def arrive(stream: Stream, arrivals: Mapping[str, tuple[int, int]], now: datetime) -> None:
    """Add `{location: (new events, source partition)}` to the buckets and restart their idle timers."""
    if not arrivals:
        return
    soon, at_once = timestamp_text(now + stream.idle), timestamp_text(now)
    rows = [
        (location, number, partition, at_once if number >= stream.max_batch else soon)
        for location, (number, partition) in sorted(arrivals.items())
    ]
    times = {"first_arrival": now, "last_arrival": now, "idle_at": now + stream.idle, "cap_at": now + stream.cap}
    names = {"stream": stream.name, "topic": topic_name(stream.topic)}
    _arrivals(stream.max_batch).run(rows, {**NEW_BUCKET, **names, **times})


def recount_buckets(stream: Stream, locations: Iterable[str], now: datetime) -> int:
    """Set the open counts of these locations; locks buckets in order.

    Returns by how much the flow's own count of open orders has to change: the caller's last statement.
    """
    ordered = sorted(locations)
    change = 0
    for part in batched(ordered, CHUNK):
        rows = Bucket.objects.of_stream(stream.name).filter(location_id__in=part).order_by("location_id")
        buckets = list(rows.select_for_update())
        counted = BufferedEvent.objects.pending().at(stream.name, part).per_location()
        for bucket in buckets:
            number = counted.get(bucket.location_id, 0)
            change += number - bucket.open_count
            if number == 0:
                Bucket.objects.filter(pk=bucket.pk).empty()
            elif number != bucket.open_count:
                lost = {"due_at": now} if bucket.due_at is None and not bucket.held else {}
                Bucket.objects.filter(pk=bucket.pk).update(open_count=number, **lost)
    return change
