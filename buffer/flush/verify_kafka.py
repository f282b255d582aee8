"""`verify --kafka` of the buffer: positions against the input topics, sent batches against the output topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from buffer.events.models import Batch
from buffer.flush.freeze import content_hash
from buffer.streams import GROUP, Stream
from config.database.chunks import by_key
from config.flows import Check
from config.kafka import Record, topic_name
from config.kafka.positions import TopicPartition
from config.kafka.reader import Reader
from outbox.bookkeeping.verify import OFFENDERS, positions_fit_the_log

CHUNK = 500
# A producer's clock, and the time between sending and settling.
TOLERANCE = timedelta(minutes=5)
LATEST_MS = 253_402_300_800_000  # the year 10000: a foreign record may say any time


def checks(streams: Iterable[Stream]) -> Iterator[Check]:
    for stream in streams:
        yield positions_fit_the_log(stream.name, topic_name(GROUP), [topic_name(stream.topic)])
        yield _sent_batches_are_in_the_topic(stream)


@dataclass
class Published:
    """What the output topic holds: a digest for each place, about 150 bytes a batch."""

    begins: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    digests: dict[TopicPartition, dict[int, str]] = field(default_factory=dict)
    oldest: datetime | None = None

    @classmethod
    def of(cls, topic: str) -> Published:
        with Reader(topic) as reader:
            found = cls({(tp.topic, tp.partition): begin for tp, begin in reader.begins.items()}, reader.marks())
            for records in reader.batches():
                found.add(records)
        return found

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            self.digests.setdefault((record.topic, record.partition), {})[record.offset] = _digest_of(record)
            if dict(record.headers or ()).get("batch_id") and 0 <= record.timestamp < LATEST_MS:
                written = datetime.fromtimestamp(record.timestamp / 1000, UTC)
                self.oldest = min(self.oldest or written, written)

    def is_gone(self, place: TopicPartition, offset: int, sent_at: datetime) -> bool:
        """Whether nobody can tell any more: the log begins later, or the topic was made later."""
        older = self.oldest is not None and sent_at < self.oldest - TOLERANCE
        return older or offset < self.begins.get(place, 0)


def _digest_of(record: Record) -> str:
    headers = {name: (value or b"").decode("utf-8", "replace") for name, value in record.headers or ()}
    return content_hash((record.value or b"").decode("utf-8", "replace"), headers)


def _sent_batches_are_in_the_topic(stream: Stream) -> Check:
    """Each stands where its row says, with the frozen bytes; those older than the topic's log are left out."""
    topic = topic_name(stream.output)
    published = Published.of(topic)
    looked_for = found = 0
    missing: list[dict[str, Any]] = []
    for row in _sent(stream):
        place, offset, sent_at = (topic, row["output_partition"]), row["output_offset"], row["sent_at"]
        if sent_at and published.is_gone(place, offset, sent_at):
            continue
        looked_for += 1
        there = published.digests.get(place, {}).get(offset) == (row["content_hash"] or _computed(row["pk"]))
        found += there
        if not there:
            missing.append({"batch": str(row["pk"]), "topic": topic, "partition": place[1], "offset": offset})
    later = _sent_since(topic, published, missing)
    missing = [row for row in missing if row not in later]
    name = f"{stream.name}: every sent batch stands in {topic} where its row says"
    return Check(name, looked_for - len(later), found, missing[:OFFENDERS])


def _sent_since(topic: str, published: Published, missing: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that came after the topic was read, and are in the log by now."""
    if not missing:
        return []
    with Reader(topic) as reader:
        ends = reader.marks()
    return [
        row
        for row in missing
        for place in [(topic, row["partition"])]
        if published.ends.get(place, 0) <= row["offset"] < ends.get(place, 0)
    ]


def _sent(stream: Stream) -> Iterator[dict[str, Any]]:
    names = ("pk", "output_partition", "output_offset", "sent_at", "content_hash")
    rows = Batch.objects.sent().of_streams([stream.name]).exclude(output_offset=None).values_list(*names)
    for chunk in by_key(rows, CHUNK):
        yield from (dict(zip(names, row, strict=True)) for row in chunk)


def _computed(batch_id: Any) -> str:
    """Of a batch that was frozen before its digest was kept."""
    row = Batch.objects.filter(pk=batch_id).values_list("payload", "headers").first()
    return content_hash(*row) if row else ""
