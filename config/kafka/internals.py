"""What Spillway uses of the private attributes of kafka-python's consumer; a test says which a new release changed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import kafka
import kafka.errors
from django.conf import settings
from kafka.consumer.fetcher import Fetcher, IsolationLevel

from config.digest import WHOLE_BYTES, keepable
from config.kafka.decompress import decompress
from config.kafka.unpack import Received, unpack, unpack_beginning, unpack_newest


def unpack_leanly(consumer: kafka.KafkaConsumer) -> kafka.KafkaConsumer:
    """Let the consumer unpack what it fetches as LeanRecords."""
    consumer._fetcher.PartitionRecords = LeanRecords
    return consumer


class LeanRecords(Fetcher.PartitionRecords):
    """What was fetched of a partition, unpacked by us: the client's way takes 40 % of an ingester's time.

    The checks of a whole batch (checksum, aborted transactions, control marks) remain the client's own.
    """

    def _unpack_records(self, tp: Any, records: Any, *_deserializers: Any) -> Iterator[Any]:
        while (batch := records.next_batch()) is not None:
            for record in self._records_of(batch, tp):
                self.next_fetch_offset = record.offset + 1
                yield record
            if batch.magic >= 2:  # compaction may have taken its last records
                self.next_fetch_offset = batch.next_offset
        self.drain()

    def _records_of(self, batch: Any, tp: Any) -> Sequence[Any]:
        try:
            if self.check_crcs and not batch.validate_crc():
                raise ValueError("wrong checksum")
            self.bytes_read += batch.size_in_bytes
            return self._content_of(batch, tp) if self._is_for_us(batch) else ()
        except (ValueError, IndexError) as error:
            raise kafka.errors.CorruptRecordError(
                f"{tp.topic}/{tp.partition} from {batch.base_offset}: {error}"
            ) from error

    def _content_of(self, batch: Any, tp: Any) -> Sequence[Any]:
        return _unpacked(batch, tp.topic, tp.partition)

    def _is_for_us(self, batch: Any) -> bool:
        """Neither the mark at the end of a transaction nor part of one that was aborted."""
        if batch.magic < 2:
            return True
        self.leader_epoch = batch.leader_epoch
        if self.isolation_level == IsolationLevel.READ_COMMITTED and batch.has_producer_id():
            self._consume_aborted_transactions_up_to(batch.last_offset)
            if self._contains_abort_marker(batch):
                self.aborted_producer_ids.discard(batch.producer_id)
            elif self._is_batch_aborted(batch):
                return False
        return not batch.is_control_batch


def unpack_only_newest(consumer: kafka.KafkaConsumer) -> kafka.KafkaConsumer:
    """Let the consumer give a NewestOfBatch for each batch in place of its records."""
    consumer._fetcher.PartitionRecords = NewestRecords
    return consumer


@dataclass(frozen=True, slots=True)
class NewestOfBatch:
    """The last value of each key in a batch; `offset` is that of its last record, `timestamp` its newest (ms)."""

    offset: int
    timestamp: int
    values: dict[bytes, bytes | None]


class NewestRecords(LeanRecords):
    """What was fetched of a compacted topic, of which nobody wants to know more than the last value of each key."""

    def _content_of(self, batch: Any, tp: Any) -> Sequence[Any]:
        if batch.magic < 2:
            return [NewestOfBatch(r.offset, r.timestamp, {r.key or b"": r.value}) for r in batch]
        data, whole = _data_of(batch)
        if not whole:
            raise ValueError("its batch is larger than KAFKA_MAX_BATCH_BYTES allows")
        return [NewestOfBatch(batch.last_offset, batch.max_timestamp, unpack_newest(data, batch.records_count))]


def _data_of(batch: Any) -> tuple[bytes, bool]:
    """The batch without its header, and whether it is all of it."""
    data = bytes(memoryview(batch._buffer)[batch._pos :])
    if batch.compression_type:
        return decompress(batch.compression_type, data, settings.KAFKA_MAX_BATCH_BYTES)
    return data, True


def _unpacked(batch: Any, topic: str, partition: int) -> list[Received]:
    if batch.magic < 2:  # written before Kafka 0.11
        return [Received(topic, partition, r.offset, r.timestamp, r.key, keepable(r.value), r.headers) for r in batch]
    data, whole = _data_of(batch)
    place = (topic, partition, batch.base_offset)
    if whole:
        found = unpack(data, 0, batch.records_count, place, batch.first_timestamp)
    else:
        found = unpack_beginning(data, place, batch.first_timestamp, batch.last_offset)
    if len(data) > WHOLE_BYTES:
        for record in found:
            record.value = keepable(record.value)
    if batch.timestamp_type == batch.LOG_APPEND_TIME:
        for record in found:
            record.timestamp = batch.max_timestamp
    return found


def is_fenced(consumer: kafka.KafkaConsumer) -> bool:
    """Whether another process took this member's name; poll() would stay silent for ever.

    The client then ends its heartbeats and changes nothing else. They are also off during a join, and before it.
    """
    coordinator = consumer._coordinator
    if coordinator.group_instance_id is None:
        return False
    with coordinator._lock:  # a finished join becomes stable first, then turns them on
        return coordinator.stable() and not coordinator._heartbeat_enabled and not coordinator.rejoining


def confirmed_at(consumer: kafka.KafkaConsumer) -> float:
    """When this member was certainly in its group: as `time.monotonic()` said when the heartbeat was sent that the
    broker answered last; minus infinity while one is under way. Any thread may ask."""
    heartbeat = consumer._coordinator.heartbeat
    sent = heartbeat.last_send  # read first: an answer that comes between the two is to this one, or a later one
    return float(sent) if heartbeat.last_receive >= sent else float("-inf")


def topic_id_of(consumer: kafka.KafkaConsumer, topic: str) -> str:
    """The topic's id, or "" where the broker is too old to have one.

    The cluster metadata is the one place where kafka-python keeps it without another request.
    """
    found = consumer._client.cluster.topic_id(topic)
    return str(found) if found and found.int else ""


def watch(consumer: kafka.KafkaConsumer, topics: Iterable[str]) -> None:
    """Keep metadata of these topics as well as of those that are read; nobody joins again because of them."""
    for topic in topics:
        consumer._client.cluster.add_topic(topic)


def partition_count(consumer: kafka.KafkaConsumer, topic: str) -> int:
    """How many partitions the topic had when the metadata was last refreshed, without asking; 0 when not known."""
    return len(consumer._client.cluster.partitions_for_topic(topic) or ())


def committed_of(consumer: kafka.KafkaConsumer, tps: Sequence[Any], timeout_ms: int) -> dict[Any, int]:
    """The group's committed offsets of these partitions in one request; KafkaTimeoutError while some are pending.

    The public call asks for one partition at a time, each with a limit of its own. An answer that came too late for
    the last call would be taken for that to this one.
    """
    consumer._coordinator._offset_fetch_futures.clear()
    found = consumer._coordinator.fetch_committed_offsets(tps, timeout_ms=timeout_ms)
    return {tp: committed.offset for tp, committed in found.items() if committed.offset >= 0}


def committed_before(consumer: kafka.KafkaConsumer, tps: Sequence[Any], timeout_ms: int) -> dict[Any, int]:
    """The same without those that are pending: answered at once by a broker that is there."""
    with _uncommitted(consumer._coordinator):
        return committed_of(consumer, tps, timeout_ms)


def ends_of_logs(consumer: kafka.KafkaConsumer, tps: Sequence[Any], timeout_ms: int) -> dict[Any, int]:
    """The ends as a reader of uncommitted records sees them, on a read-committed connection.

    A committed reader's end lies before the oldest open transaction, whoever left it open.
    """
    with _uncommitted(consumer._fetcher):
        return dict(consumer.end_offsets(tps, timeout_ms=timeout_ms))


@contextmanager
def _uncommitted(asking: Any) -> Iterator[None]:
    """Outside of poll() the client sends nothing but what it is asked for."""
    before, asking._isolation_level = asking._isolation_level, IsolationLevel.READ_UNCOMMITTED
    try:
        yield
    finally:
        asking._isolation_level = before


def refresh_metadata(consumer: kafka.KafkaConsumer, topic: str, timeout_ms: int) -> None:
    """Ask what the topic is now; KafkaTimeoutError. The client's own calls answer from memory, or wait for ever.

    UnknownTopicOrPartitionError may say that it was deleted. A topic that is not known yet is looked for among all:
    the embedded broker makes each that is asked for by name.
    """
    cluster = consumer._client.cluster
    deadline = time.monotonic() + timeout_ms / 1000
    if cluster.partitions_for_topic(topic):
        cluster.add_topic(topic)
    else:
        cluster.need_all_topic_metadata = True
    try:
        # What is being asked already may not ask for it.
        for _ in range(2 if cluster.metadata_refresh_in_progress else 1):
            left = max(0.0, deadline - time.monotonic()) * 1000
            consumer._net.run(consumer._client._manager.wait_for, cluster.request_update(), left)
    finally:
        cluster.need_all_topic_metadata = False


def unpark(consumer: kafka.KafkaConsumer) -> None:
    """Let the next poll look at what it kept of partitions while they were paused.

    kafka-python 3.0.12 does so only while it reads no other partition; one that was read to its end still counts. A
    partition that was paused alone would be neither given nor fetched again.
    """
    fetcher = consumer._fetcher
    if not fetcher._next_partition_records:  # of none, or of one that was read to its end
        fetcher._next_partition_records = None


def keep_rejoining(consumer: kafka.KafkaConsumer) -> None:
    """Let the next poll finish a rejoin that outlasted the last one.

    kafka-python 3.0.12 forgets it when new metadata was its cause: the member has sent its JoinGroup, never
    takes up the answer, and stays in the group without partitions until the broker throws it out.
    """
    if consumer._coordinator.rejoining:
        consumer._coordinator.request_rejoin()


def join(consumer: kafka.KafkaConsumer, timeout_ms: int) -> None:
    """Take part in the group until its partitions are known, or for so long.

    kafka-python's own poll() does this first and then waits on, for records of partitions that are paused.
    """
    consumer._coordinator.poll(timeout_ms=timeout_ms)


async def nap(consumer: kafka.KafkaConsumer, seconds: float) -> None:
    """Wait inside a rebalance callback: it runs on the client's own thread, heartbeats go on meanwhile."""
    await consumer._net.sleep(seconds)


async def commit_inside(consumer: kafka.KafkaConsumer, offsets: dict[Any, Any], timeout_ms: int) -> None:
    """Commit inside a rebalance callback, where the client refuses every call that blocks."""
    await consumer._coordinator._commit_offsets_sync_async(offsets, timeout_ms)
