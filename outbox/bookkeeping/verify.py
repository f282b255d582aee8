"""The checks that every flow shares: each record has an outcome, each position is kept and fits its log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing

from config.flows import Check
from config.kafka.positions import Log, Mark, Stopped, TopicPartition, start_of
from config.kafka.reader import MissingTopic, ReadConnection
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import Watermark
from outbox.bookkeeping.watermarks import Watermarks

OFFENDERS = 20
FORGOTTEN = "the group has committed more than this database remembers: restored from a backup, or changed by hand"


def every_record_has_an_outcome(flow: str, outcomes: Sequence[str]) -> Check:
    """In each partition the records read and replayed are as many as the outcomes counted."""
    came = went = 0
    offenders = []
    for scope, counts in sorted(counters.by_scope(flow).items()):
        read = counts.get("read", 0) + counts.get("replayed", 0)
        accounted = sum(counts.get(name, 0) for name in outcomes)
        came += read
        went += accounted
        if read != accounted:
            offenders.append({"partition": scope, **counts})
    return Check(f"{flow}: read + replayed = {' + '.join(outcomes)}", came, went, offenders[:OFFENDERS])


def every_position_is_kept(flow: str, group: str, place_of: Callable[[str], TopicPartition | None]) -> Check:
    """A partition whose records were counted has a watermark; `place_of` reads the scope of a counter."""
    read = {place_of(scope) for scope, counts in counters.by_scope(flow).items() if counts.get("read", 0) > 0}
    places = sorted(place for place in read if place)
    marks = Watermarks().load(group, sorted({topic for topic, _ in places}))
    lost = [{"topic": topic, "partition": number} for topic, number in places if (topic, number) not in marks]
    return Check(f"{flow}: every partition that was read has its watermark", rows=lost[:OFFENDERS])


def no_partition_is_stopped(flow: str, group: str, topics: Collection[str] | None = None) -> Check:
    """A partition that waits for --accept-reset is not read: whatever its log holds has no outcome."""
    stopped = Watermark.objects.filter(group=group).exclude(alarm="").order_by("topic", "partition")
    rows = stopped.values("topic", "partition", "alarm")
    return Check(
        f"{flow}: no partition is stopped",
        rows=[row for row in rows if topics is None or row["topic"] in topics][:OFFENDERS],
    )


def positions_fit_the_log(flow: str, group: str, topics: Sequence[str]) -> Check:
    """No watermark lies where its log has no records, none remembers less than the group has committed."""
    offenders = [row for topic in topics for row in _misfits(group, topic)]
    return Check(f"{flow}: every watermark fits the log", rows=offenders[:OFFENDERS])


def _logs_of(topic: str) -> dict[int, Log]:
    """Empty for a topic that nobody has made: change capture is not used everywhere."""
    with closing(ReadConnection()) as connection:
        try:
            return connection.logs(topic)
        except MissingTopic:
            return {}


def _misfits(group: str, topic: str) -> Iterator[dict[str, object]]:
    marks = Watermarks().load(group, [topic])  # before the ends: both move on
    behind = set(Watermarks().behind(group, topic))
    logs = _logs_of(topic)
    for place in sorted(marks.keys() | behind):
        mark = marks.get(place, Mark("", 0))
        start = start_of(mark, logs.get(place[1], Log("", 0, 0, None)))
        why = start.alarm if isinstance(start, Stopped) else FORGOTTEN if place in behind else ""
        if why:
            yield {"topic": topic, "partition": place[1], "watermark": mark.next_offset, "why": why}
