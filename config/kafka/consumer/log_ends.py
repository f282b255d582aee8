"""Once a second, note the log end offset of each partition, and later whether everything below it was written.

A bucket may count as idle only while its consumer is known to have read everything: under traffic a consumer
is always a few records behind the *present* end, so what counts is the end as it was when last looked at.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from config.kafka import client, internals
from config.kafka.consumer.writer import LogEndSeen
from config.kafka.positions import Passed, TopicPartition
from config.telemetry import metrics
from config.telemetry.logs import log

INTERVAL = 1.0


@dataclass
class Watch:
    """A log end offset that was noted and is not yet known to be reached."""

    end_offset: int
    taken_at: float
    sequence: int | None = None  # the batch after which everything below the end is written
    passed: Passed | None = None  # the position at that moment


class LogEnds:
    """Watches the ends of the partitions a consumer owns."""

    def __init__(self, consumer: client.Client, group: str) -> None:
        self.consumer = consumer
        self.group = group
        self.watches: dict[TopicPartition, Watch] = {}
        self.unreached: set[TopicPartition] = set()
        # Behind the last record that is with the backend, of each partition that is read.
        self.records_end: dict[TopicPartition, int] = {}
        self.looked = False
        self.next_look = 0.0
        self.fresh: dict[TopicPartition, LogEndSeen] = {}
        self.blind = False  # the broker did not answer the last query

    def started(self, tp: TopicPartition, offset: int) -> None:
        """A partition begins to be read."""
        self.records_end[tp] = offset
        self.unreached.add(tp)
        self.next_look = 0.0

    def submitted(self, ends: Mapping[TopicPartition, int]) -> None:
        """The backend has the records below these offsets; of a partition that was taken away meanwhile nothing is kept."""
        self.records_end |= {tp: end for tp, end in ends.items() if tp in self.records_end}

    def forget(self, gone: Iterable[TopicPartition]) -> None:
        for tp in gone:
            metrics.CONSUMER_LAG_RECORDS.remove(self.group, tp[0], str(tp[1]))  # whoever has it now measures it
            self.records_end.pop(tp, None)
            self.watches.pop(tp, None)
            self.fresh.pop(tp, None)
            self.unreached.discard(tp)

    @property
    def reached_first_end(self) -> bool:
        """Every partition has been read to the end that was seen first."""
        return self.looked and not self.unreached

    @property
    def behind(self) -> bool:
        """There is something to read that no poll has brought yet; a broker that does not answer says nothing."""
        return bool(self.unreached) and not self.blind

    def look(self, sequence: int, stopped: Container[TopicPartition], in_hand: Container[TopicPartition] = ()) -> None:
        """Note ends once a second, and which watches the position has passed by batch `sequence`.

        Of what is `in_hand` there are records that were polled and are in no batch yet: their position counts later.
        """
        # The client's thread assigns a partition before it calls the listener: until it was placed, its position is
        # the group's, which is not where the database says that reading begins.
        read = [tp for tp in self.consumer.assignment() if (tp.topic, tp.partition) in self.records_end]
        read = [tp for tp in read if (tp.topic, tp.partition) not in stopped]
        if time.monotonic() >= self.next_look and read:
            self._note_ends(read)
        for tp in read:
            watch = self.watches.get((tp.topic, tp.partition))
            records_end = self.records_end.get((tp.topic, tp.partition))
            if watch is None or watch.sequence is not None or records_end is None:
                continue
            if (tp.topic, tp.partition) in in_hand:
                continue
            if (position := self.consumer.position(tp)) >= watch.end_offset:
                watch.sequence = sequence
                topic_id = internals.topic_id_of(self.consumer, tp.topic)
                watch.passed = Passed(topic_id, position, records_end)

    def to_report(self, done_sequence: int) -> dict[TopicPartition, LogEndSeen]:
        """What there is to report; empty when nothing new is known."""
        for tp, watch in list(self.watches.items()):
            if watch.sequence is not None and watch.sequence <= done_sequence:
                self.fresh[tp] = LogEndSeen(watch.end_offset, watch.taken_at, caught_up=True, passed=watch.passed)
                self.unreached.discard(tp)
                self.looked = True
                del self.watches[tp]
        return self.fresh

    def reported(self) -> None:
        self.fresh = {}

    def _note_ends(self, read: list[client.TopicPartition]) -> None:
        taken_at = time.monotonic()
        self.next_look = taken_at + INTERVAL
        try:
            ends = self.consumer.end_offsets(read, timeout_ms=2_000)
        except client.KafkaError as error:
            # Report nothing: no records does not mean idle now. The client's poll() hides that the broker is away.
            if not self.blind:
                log.warning("broker_unavailable", worker=self.group, error=str(error))
            self.blind = True
            return
        self.blind = False
        for tp, end in ends.items():
            key = (tp.topic, tp.partition)
            if key not in self.records_end:  # taken away meanwhile
                continue
            labels = (self.group, tp.topic, str(tp.partition))
            metrics.CONSUMER_LAG_RECORDS.labels(*labels).set(max(0, end - self.consumer.position(tp)))
            self.watches.setdefault(key, Watch(end, taken_at))
            # Reported even while behind or paused: the end moves on, and the report asks for the pressure.
            self.fresh.setdefault(key, LogEndSeen(end, taken_at, caught_up=False))
