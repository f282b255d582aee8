"""Read what a topic holds of a timeframe, without a group and without committing anything."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from config.kafka import client, internals

QUIET = 10.0  # seconds without a record after which the broker is asked whether it is there
ANSWER_MS = 10_000


@dataclass(frozen=True)
class Bounds:
    """The offsets of one partition to look at: `start` inclusive, `end` exclusive."""

    start: int
    end: int


@dataclass(frozen=True)
class Part:
    """Some records of one partition, and the offset below which all have been given."""

    partition: int
    records: Sequence[Any]
    position: int


class Timeframe:
    """The records of `topic` with a timestamp in [since, until), in milliseconds.

    Timestamps are the producers' and need not rise with the offsets: the search looks `slack` milliseconds
    further on both sides, and each record's own timestamp decides. A broker that cannot search
    by time (the embedded one) is read from the beginning. Raises KafkaError when none answers.
    """

    def __init__(self, topic: str, since: int, until: int, slack: int) -> None:
        self.topic, self.since, self.until, self.slack = topic, since, until, slack
        self.consumer = client.new_consumer(None, auto_offset_reset="earliest")
        internals.unpack_damaged(self.consumer)
        numbers = self.consumer.partitions_for_topic(topic) or ()
        self.tps = [client.TopicPartition(topic, number) for number in sorted(numbers)]
        self.topic_id = internals.topic_id_of(self.consumer, topic)

    def __enter__(self) -> Timeframe:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.consumer.close(autocommit=False)

    def bounds(self) -> dict[int, Bounds]:
        """The timeframe's offsets in each partition, as far as the log still has them."""
        begins = self.consumer.beginning_offsets(self.tps, timeout_ms=ANSWER_MS)
        ends = self.consumer.end_offsets(self.tps, timeout_ms=ANSWER_MS)
        first = self._search(0)
        if not any(first.values()) and any(begins[tp] < ends[tp] for tp in self.tps):
            return {tp.partition: Bounds(begins[tp], ends[tp]) for tp in self.tps}
        starts, stops = self._search(max(0, self.since - self.slack)), self._search(self.until + self.slack)
        return {
            tp.partition: Bounds(
                min(ends[tp], starts[tp].offset) if starts[tp] else ends[tp],
                min(ends[tp], stops[tp].offset) if stops[tp] else ends[tp],
            )
            for tp in self.tps
        }

    def _search(self, timestamp: int) -> Mapping[Any, Any]:
        wanted = dict.fromkeys(self.tps, timestamp)
        return dict(self.consumer.offsets_for_times(wanted, timeout_ms=ANSWER_MS))

    def parts(self, bounds: Mapping[int, Bounds], size: int) -> Iterator[Part]:
        """Partition by partition, `size` records at a time, so that two runs do exactly the same steps.

        In between come parts without records, which only say how far the search is.
        """
        for tp in self.tps:
            here = bounds.get(tp.partition)
            if here and here.start < here.end:
                held: list[Any] = []
                for found, position in self._polls(tp, here):
                    held += found
                    while len(held) >= size:
                        part, held = held[:size], held[size:]
                        yield Part(tp.partition, part, part[-1].offset + 1)
                    yield Part(tp.partition, [], held[0].offset if held else position)
                yield Part(tp.partition, held, here.end)

    def _polls(self, tp: Any, bounds: Bounds) -> Iterator[tuple[list[Any], int]]:
        self.consumer.assign([tp])
        self.consumer.seek(tp, bounds.start)
        position, moved = bounds.start, time.monotonic()
        while position < bounds.end:
            found = self.consumer.poll(timeout_ms=500).get(tp, ())
            # Control records and compaction leave gaps: the position decides, not the last record seen.
            reached = min(self.consumer.position(tp, timeout_ms=ANSWER_MS), bounds.end)
            if reached > position:
                moved = time.monotonic()
            elif time.monotonic() - moved > QUIET:
                # The client's poll() never says that the broker is away; this does.
                self.consumer.end_offsets([tp], timeout_ms=ANSWER_MS)
                moved = time.monotonic()
            position = reached
            yield [r for r in found if r.offset < bounds.end and self._holds(r)], position

    def _holds(self, record: Any) -> bool:
        return bool(self.since <= record.timestamp < self.until)
