"""The consumer: poll, decode, hand to the backend, commit what the backend has finished."""

from __future__ import annotations

import threading
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import OperationalError

from config.database.retry import awaited
from config.kafka import client, internals
from config.kafka.consumer.membership import Membership
from config.kafka.consumer.ports import Backend, Committer, ConsumerStopped, PartsOf, Placing, RecordSource
from config.kafka.consumer.writer import LogEndSeen
from config.kafka.positions import Passed, Start, Stopped, TopicPartition
from config.kafka.records import Record, RecordBatch, cut
from config.kafka.topics import topic_name
from config.telemetry import metrics
from config.telemetry.activity import activity
from config.telemetry.logs import log

__all__ = ["Consumer", "ConsumerStopped"]


class Consumer:
    """Reads the topics of a source in its group until told to stop.

    1. Assignment: `placing` says where a partition starts, or that it is stopped with an alarm.
    2. Poll and decode batch n + 1 while the backend works on batch n.
    3. The committer tells Kafka only what the backend has finished.
    4. Revocation: finish and commit the batch in hand before the partition is given up.

    `options` are those of Membership: `follower`, `instance` (a name that makes the membership static), `is_fenced`.
    """

    backend: Backend
    committer: Committer
    placing: Placing
    log_ends: LogEnds

    def __init__(self, source: RecordSource, parts_of: PartsOf, stop: threading.Event, **options: Any) -> None:
        self.source, self.parts_of, self.stop = source, parts_of, stop
        self.topics = [topic_name(topic) for topic in source.topics]
        self.group = topic_name(source.group)
        self.member = Membership(self.group, self.topics, source.name, stop, self, **options)
        self.pending: list[Record] = []

    def run(self, *, once: bool = False, until_idle: float | None = None) -> None:
        """Work until `stop`; `once` ends at the log end seen first, `until_idle` after that many quiet seconds."""
        consumer = self.member.connect()
        parts = self.parts_of(consumer)
        self.backend, self.committer, self.placing = parts.backend, parts.committer, parts.placing
        if parts.accept_damage:
            internals.unpack_damaged(consumer)
        self.log_ends = LogEnds(consumer, self.group)
        # Before anything is asked of the topics: else subscribing changes the metadata once more, and the group is
        # joined twice.
        self.member.subscribe()
        try:
            self.member.refuse_missing_topics()
            self._loop(once, until_idle)
        finally:
            self._leave()

    def _loop(self, once: bool, until_idle: float | None) -> None:
        member = self.member
        last_work = time.monotonic()
        while not self.stop.is_set():
            # For its partitions, or for what is fetched again because it was damaged: neither is being idle.
            waiting = member.rejoining or member.unplaced or member.tries
            records = self._round()
            if records or waiting or self.backend.working:
                last_work = time.monotonic()
            owned = self._report(records)
            member.refuse_if_stopped(bool(owned) and owned <= member.stopped.keys())
            quiet = time.monotonic() - last_work >= (until_idle or 1e9) and not self.log_ends.behind
            if self._idle() and (quiet or (once and self._reached())):
                break
        member.refuse_if_stopped(once or until_idle is not None)

    def _report(self, records: int) -> set[TopicPartition]:
        """That the loop has come round, and what it has in hand."""
        owned = self.member.owned()
        activity.hold(self.source.name, owned, "records", awaited(self.backend.waiting))
        activity.came_round(records)
        return owned

    def _reached(self) -> bool:
        """Everything that was in the log at first is written; a member without partitions has nothing to read."""
        if self.member.rejoining:  # it holds none just now, because somebody else joined or left
            return False
        return self.member.joined and (self.log_ends.reached_first_end or not self.member.owned())

    def _round(self) -> int:
        """One poll and what follows from it; returns how many records it brought."""
        if lost := self.backend.lost():
            self.member.start_over(lost)
        self.member.hold(self.backend.pressed or bool(self.backend.waiting))
        self.member.hold_only(self.backend.full())
        polled = self.member.poll(self._patience())
        records = [*self.pending, *polled]
        gathers = self.source.gathers and self.backend.busy and len(records) < settings.KAFKA_POLL_RECORDS
        self.pending = records if gathers else []
        if self.member.unplaced:
            self._place()
        if not gathers:
            self._submit_all(records)
            in_hand = {(record.topic, record.partition) for record in self.pending}
            self.log_ends.look(self.backend.sequence, self.member.resting, in_hand)
            if self.log_ends.overtaken:
                self.member.start_over(set(self.log_ends.overtaken))
        self._commit()
        if ends := self.log_ends.to_report(self.backend.done_sequence):
            self.backend.beat(ends)
            self.log_ends.reported()
        return len(records)

    def _patience(self) -> int:
        """Milliseconds to poll for.

        kafka-python throws a join away that completes between two calls of poll() and starts another one:
        until the partitions are assigned, a poll must be long and the next one follow at once.
        """
        if self.member.rejoining:
            return 1000
        return 20 if self.member.unplaced else 10 if self.pending else 100

    def _submit_all(self, records: list[Record]) -> None:
        shares = self.backend.deal(records)
        parts = [(to, part) for to, share in shares for part in cut(share, settings.KAFKA_POLL_BYTES)]
        for number, (to, part) in enumerate(parts):
            if not self._submit(to, part):
                # Nothing behind a part that was not written may be written: the watermark would skip it.
                left = [record for _to, rest in parts[number:] for record in rest]
                self.member.start_over({(record.topic, record.partition) for record in left})
                return

    def _submit(self, to: object, records: Sequence[Record]) -> bool:
        """Decode a batch and hand it to the backend; while that is busy, keep polling to stay in the group."""
        batch = RecordBatch(records, self.member.topic_ids)
        try:
            batch.prepared = self.source.prepare(batch)
        except OperationalError:
            pass  # what has to be waited for: the writer prepares again, and waits
        except Exception:  # noqa: BLE001 (the writer prepares again and bisects to the guilty record)
            log.exception("prepare_failed", worker=self.source.name)
        while not self.backend.submit(to, batch, timeout=1.0):
            self.member.hold(True)
            if self.backend.waiting:
                self._report(0)  # else who waits for long would count as hanging
            self.pending += self.member.poll(self._patience() if self.member.rejoining else 0)
            self._commit()
            if self.stop.is_set() or not self.member.owned().issuperset(batch.ends):
                return False  # not written, not committed: read again by whoever owns it next
        self.log_ends.submitted(batch.ends)
        return True

    def _place(self) -> None:
        """Seek every newly assigned partition to its start, or stop it with an alarm."""
        waiting = (self.member.unplaced & self.member.owned()) - self.member.doubted.keys()
        ids = self.member.ids()  # asked before: a topic made anew meanwhile shows at the next poll
        try:
            starts = self.placing.place(self.member.consumer, waiting) if waiting else {}
        except client.FATAL:
            raise
        except client.RetriableError as error:
            self.member.broker_is_away(error)
            return
        if starts:
            self.member.topic_ids = ids
        for tp, start in sorted(starts.items()):
            if isinstance(start, Start) and not start.accepts:
                self._start(tp, start)
            else:
                self.member.doubt(tp, start)
        believed = self.member.believed()
        if believed and self.placing.confirmed(believed):
            for tp, start in sorted(believed.items()):
                self._start(tp, start)

    def _start(self, tp: TopicPartition, start: Start | Stopped) -> None:
        if isinstance(start, Start):
            self.member.start(tp, start.offset)
            self.log_ends.started(tp, start.offset)
        else:
            self.member.stop_partition(tp, start.alarm)
            self.log_ends.forget({tp})

    # -- what the membership asks for ---------------------------------------------------------------

    async def finish(self) -> None:
        """Finish and commit the batch in hand, within ten seconds; at once when this process is told to stop."""
        limit = time.monotonic() + (0 if self.stop.is_set() else 10)
        while self.backend.busy and time.monotonic() < limit:
            await internals.nap(self.member.consumer, 0.01)
        await self.committer.commit_inside()

    def drop(self, gone: set[TopicPartition]) -> None:
        """Forget what was polled of these partitions and is not with the backend."""
        self.pending = [record for record in self.pending if (record.topic, record.partition) not in gone]
        self.log_ends.forget(gone)

    def _commit(self) -> None:
        if self.committer.commit_soon():
            self.member.broker_away = False

    def _idle(self) -> bool:
        done = self.backend.done_sequence == self.backend.sequence
        return done and not self.member.unplaced and not self.backend.working

    def _leave(self) -> None:
        try:
            self.backend.close()
            self.committer.commit_now()
        finally:
            self.member.leave()


# -- Where the partitions end: noted once a second, and later whether everything below it was written --------
# A bucket may count as idle only while its consumer is known to have read everything: under traffic a consumer
# is always a few records behind the *present* end, so what counts is the end as it was when last looked at.
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
        # Paused partitions whose next record the log has no longer: nothing is fetched of them that would say so.
        self.overtaken: set[TopicPartition] = set()

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
            self.overtaken.discard(tp)

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
        read = [tp for tp in self.consumer.assignment() if tp in self.records_end and tp not in stopped]
        if time.monotonic() >= self.next_look and read:
            self._note_ends(read)
        for tp in read:
            watch, records_end = self.watches.get(tp), self.records_end.get(tp)
            if watch is None or watch.sequence is not None or records_end is None or tp in in_hand:
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
        paused = self.consumer.paused().intersection(read)
        try:
            begins = self.consumer.beginning_offsets(list(paused), timeout_ms=2_000) if paused else {}
            ends = self.consumer.end_offsets(read, timeout_ms=2_000)
        except client.KafkaError as error:
            # Report nothing: no records does not mean idle now. The client's poll() hides that the broker is away.
            if not self.blind:
                log.warning("broker_unavailable", worker=self.group, error=str(error))
            self.blind = True
            return
        self.blind = False
        self.overtaken = {tp for tp, begin in begins.items() if self.consumer.position(tp) < begin}
        for tp, end in ends.items():
            if tp not in self.records_end:  # taken away meanwhile
                continue
            labels = (self.group, tp.topic, str(tp.partition))
            metrics.CONSUMER_LAG_RECORDS.labels(*labels).set(max(0, end - self.consumer.position(tp)))
            self.watches.setdefault(tp, Watch(end, taken_at))
            # Reported even while behind or paused: the end moves on, and the report asks for the pressure.
            self.fresh.setdefault(tp, LogEndSeen(end, taken_at, caught_up=False))
