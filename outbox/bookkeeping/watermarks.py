"""Watermarks: the positions of consumer groups, stored with the data they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from django.db.models import BigIntegerField, Case, F, Q, Value, When

from config.database.upsert import Upsert, timestamp_text
from config.kafka.positions import LogEnd, Mark, Passed, TopicPartition
from config.kafka.reader import committed_offsets
from outbox.bookkeeping.models import Watermark

COLUMNS = "topic partition topic_id next_offset end_offset alarm"
ADVANCE = Upsert(
    Watermark,
    columns=COLUMNS,
    constants="group updated_at",
    key="group topic partition",
    update={
        # A zombie that finishes late must not move its successor's mark back, nor into a topic that is no more: only a
        # reset goes from one topic to another.
        "next_offset": "CASE WHEN old.topic_id = new.topic_id AND old.next_offset > new.next_offset "
        "OR new.topic_id <> '' AND old.topic_id NOT IN ('', new.topic_id) "
        "THEN old.next_offset ELSE new.next_offset END",
        "topic_id": "CASE WHEN old.topic_id = '' THEN new.topic_id ELSE old.topic_id END",
        "updated_at": "new.updated_at",
    },
)

# In one statement: a writer that waits for one of these rows would wait until the last of them is written. Where nothing was
# ever read, and that is known, a partition starts at its end.
REACH = Upsert(
    Watermark,
    columns=f"{COLUMNS} caught_up_at",
    constants="group updated_at",
    key="group topic partition",
    update={
        "end_offset": "new.end_offset",
        "caught_up_at": "COALESCE(new.caught_up_at, old.caught_up_at)",
        "alarm": "''",
        "updated_at": "new.updated_at",
    },
)
KNOW = Upsert(Watermark, columns=COLUMNS, constants="group updated_at", key="group topic partition", update={})


class Watermarks:
    """`config.kafka.Positions` over the Watermark table."""

    def load(self, group: str, topics: list[str]) -> dict[TopicPartition, Mark]:
        rows = Watermark.objects.filter(group=group, topic__in=topics)
        return {(row.topic, row.partition): Mark(row.topic_id, row.next_offset) for row in rows}

    def behind(self, group: str, topic: str) -> list[TopicPartition]:
        """Partitions of which this database remembers less than the group has committed: it was restored."""
        committed = committed_offsets(group, topic)  # first: the marks move before the offsets
        marks = self.load(group, [topic])
        return [tp for tp, mark in committed.items() if _remembers_less(marks.get(tp, Mark("", 0)), mark)]

    def advance(self, group: str, marks: Mapping[TopicPartition, Mark], now: datetime) -> None:
        """Move the marks forward, in the transaction of the batch they follow."""
        rows = [(*tp, mark.topic_id, mark.next_offset, 0, "") for tp, mark in sorted(marks.items())]
        ADVANCE.run(rows, {"group": group, "updated_at": now})

    def reset(self, group: str, marks: Mapping[TopicPartition, Mark], now: datetime) -> None:
        """Accept another incarnation of a topic, or a gap in its log."""
        self.know(group, marks, now)  # one that was always empty has no row
        for (topic, partition), mark in marks.items():
            Watermark.objects.filter(group=group, topic=topic, partition=partition).update(
                topic_id=mark.topic_id, next_offset=mark.next_offset, alarm="", updated_at=now
            )

    def stop(self, group: str, alarms: Mapping[TopicPartition, str], now: datetime) -> None:
        for (topic, partition), alarm in alarms.items():
            Watermark.objects.filter(group=group, topic=topic, partition=partition).update(
                alarm=alarm[:500], updated_at=now
            )

    def know(self, group: str, places: Iterable[TopicPartition], now: datetime) -> None:
        """Rows for partitions that nothing was ever read from; those that are known stay as they are."""
        KNOW.run([(*tp, "", 0, 0, "") for tp in sorted(places)], {"group": group, "updated_at": now})

    def reach(self, group: str, reached: Mapping[TopicPartition, LogEnd], now: datetime) -> None:
        """Note how far the log reaches, and since when everything in it is known to be written."""
        ends = [
            (*tp, "", 0, end.end_offset, "", timestamp_text(end.caught_up_at) if end.caught_up_at else None)
            for tp, end in sorted(reached.items())
        ]
        REACH.run(ends, {"group": group, "updated_at": now})
        if passed := {tp: end.passed for tp, end in reached.items() if end.passed}:
            # Read first: a quiet partition says every second what is known, and sixty updates take a fifth of a processor.
            marks = self.load(group, sorted({topic for topic, _ in passed}))
            for (topic, partition), to in sorted(passed.items()):
                if _is_news(marks.get((topic, partition)), to):
                    rows = Watermark.objects.filter(group=group, topic=topic, partition=partition)
                    rows.update(**_moved(to))


def _remembers_less(mark: Mark, committed: Mark) -> bool:
    """A place in another topic says nothing of this one."""
    another = mark.topic_id and committed.topic_id not in ("", mark.topic_id)
    return committed.next_offset > (0 if another else mark.next_offset)


def _is_news(mark: Mark | None, to: Passed) -> bool:
    """Whether `_moved` would change the row that has this mark."""
    if mark is None or mark.topic_id not in ("", to.topic_id):
        return False
    return mark.topic_id != to.topic_id or to.since <= mark.next_offset < to.next_offset


def _moved(to: Passed) -> dict[str, object]:
    """Forward only, within the topic, and not over a gap: a database that was restored meanwhile knows less than `since`.

    A report may come after the first batch of a topic that was made anew.
    """
    here = (Q(topic_id="") | Q(topic_id=to.topic_id)) & Q(next_offset__gte=to.since)
    ahead = When(here & Q(next_offset__lt=to.next_offset), then=Value(to.next_offset, BigIntegerField()))
    return {
        "next_offset": Case(ahead, default=F("next_offset")),
        "topic_id": Case(When(Q(topic_id=""), then=Value(to.topic_id)), default=F("topic_id")),
    }
