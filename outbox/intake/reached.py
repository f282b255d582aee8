"""How far each partition had been read, day by day: what lies below was stored by then, whatever its record says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from django.conf import settings

from outbox.bookkeeping import counters
from outbox.bookkeeping.models import FlowCounter, Watermark

READ_BY = "messages-in read by "  # before the id of a topic; the names of its counters are Unix times
KEPT = "messages-in keys of letters"
SPARE = timedelta(days=2)


def record_positions(group: str, now: datetime) -> None:
    """Write down where a consumer group stands, and forget what is older than any key."""
    marks = Watermark.objects.of_group(group)
    rows = [
        (_flow(mark.topic_id), str(mark.partition), counters.ONE_WRITER, _moment(now), mark.next_offset)
        for mark in marks
    ]
    since = (KEPT, "", counters.ONE_WRITER, "since", -int(now.timestamp()))  # below 0, so that the first stays
    counters.RAISE.run([*rows, since])
    oldest = now - timedelta(days=settings.OUTBOX_IDEMPOTENCY_DAYS) - SPARE
    FlowCounter.objects.filter(flow__startswith=READ_BY, name__lt=_moment(oldest)).delete()


def keys_kept_from(now: datetime) -> datetime:
    """Keys that letters of this time and later name were kept; those of earlier ones may have been deleted."""
    began = FlowCounter.objects.filter(flow=KEPT).values_list("value", flat=True).first()
    since = datetime.fromtimestamp(-began, UTC) if began else now
    return since - timedelta(days=settings.OUTBOX_IDEMPOTENCY_DAYS)


def read_by(moment: datetime, topic_ids: Mapping[str, str]) -> dict[tuple[str, int], int]:
    """The offsets below which these topics were read by then; a little more, as it is noted once a day."""
    return dict(place for topic, topic_id in topic_ids.items() for place in _read_by(moment, topic, topic_id))


def _read_by(moment: datetime, topic: str, topic_id: str) -> Iterator[tuple[tuple[str, int], int]]:
    rows = FlowCounter.objects.filter(flow=_flow(topic_id)).order_by("name").values_list("scope", "name", "value")
    noted: dict[str, int] = {}
    settled: set[str] = set()
    for partition, name, offset in rows:
        if partition not in settled:
            noted[partition] = int(offset)
        if name >= _moment(moment):
            settled.add(partition)
    return (((topic, int(partition)), offset) for partition, offset in noted.items())


def _flow(topic_id: str) -> str:
    return f"{READ_BY}{topic_id}"


def _moment(moment: datetime) -> str:
    return f"{int(moment.timestamp()):011}"
