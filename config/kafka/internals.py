"""Every private attribute of kafka-python that Spillway uses; a test says which."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import kafka
import kafka.errors
from django.conf import settings
from kafka.consumer.fetcher import CompletedFetch, Fetcher, IsolationLevel
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.record.abc import ABCRecordBatch
from kafka.record.memory_records import MemoryRecords

from config.kafka.wire_format import FURTHEST, Received, decompress, unpack, unpack_beginning, unpack_newest
from config.payload import WHOLE_BYTES, UnreadableBatch, keepable

UNREADABLE = b"\0unreadable "  # of a NewestOfBatch that stands for a batch; no customer's name begins so
TOO_LARGE = "it is larger than KAFKA_MAX_BATCH_BYTES allows"


class DamagedBatch(kafka.errors.KafkaError):
    """What lies at `offset` of `place` (topic, partition) is damaged, perhaps even its offsets; the text is one line."""

    def __init__(self, place: tuple[str, int], offset: int, why: object) -> None:
        super().__init__(f"what lies in {place[0]}/{place[1]} from offset {offset} on is damaged: {why}")
        self.place, self.offset = place, offset

    def __str__(self) -> str:
        return str(self.args[0])


def unpack_leanly(consumer: kafka.KafkaConsumer) -> kafka.KafkaConsumer:
    """Let the consumer unpack what it fetches as LeanRecords; what it cannot even look at is a DamagedBatch."""
    fetcher = consumer._fetcher
    fetcher.PartitionRecords = LeanRecords
    fetcher._parse_fetched_data = partial(_parsed, fetcher._parse_fetched_data)
    return consumer


def unpack_damaged(consumer: kafka.KafkaConsumer) -> None:
    """Let the consumer give an UnreadableBatch for a wrong checksum, too: an operator has accepted to go on behind it."""
    consumer._fetcher.PartitionRecords = SalvagedRecords


def _parsed(parse: Callable, fetched: CompletedFetch) -> Fetcher.PartitionRecords | None:
    """Say of which partition an answer of the broker holds no batch: the client's own error does not."""
    try:
        return parse(fetched)
    except kafka.errors.CorruptRecordError as error:
        why = "so the broker says"
        raise DamagedBatch(fetched.topic_partition, fetched.fetched_offset, why) from error
    except kafka.errors.KafkaError as error:
        if type(error) is not kafka.errors.KafkaError:
            raise
        why = "what came holds no whole batch"
        raise DamagedBatch(fetched.topic_partition, fetched.fetched_offset, why) from error


class LeanRecords(Fetcher.PartitionRecords):
    """What was fetched of a partition, unpacked by us: the client's way takes 40 % of an ingester's time.

    The checks of a whole batch (checksum, aborted transactions, control marks) remain the client's own. A batch that is
    whole and cannot be unpacked is one record, whose value is an UnreadableBatch. DamagedBatch where it is not whole:
    its offsets may be wrong as well.
    """

    salvages = False

    def _unpack_records(
        self, tp: kafka.TopicPartition, records: MemoryRecords, *_deserializers: object
    ) -> Iterator[Read]:
        try:
            while (batch := records.next_batch()) is not None:
                content, end = self._records_of(batch, records, tp)
                for record in content:
                    self.next_fetch_offset = record.offset + 1
                    yield record
                self.next_fetch_offset = end  # compaction may have taken its last records
            self.drain()
        except Exception as error:
            self.drain()  # the client asks for more until it is told that there is none
            raise DamagedBatch(tp, self.next_fetch_offset, error) from error

    def _records_of(
        self, batch: ABCRecordBatch, records: MemoryRecords, tp: kafka.TopicPartition
    ) -> tuple[Sequence[Read], int]:
        """The records of a batch, and the offset behind it; ValueError if it is damaged."""
        if not 0 <= batch.magic <= 2:
            raise ValueError(f"format {batch.magic} is unknown")
        intact = not self.check_crcs or batch.validate_crc()
        if not intact and not self.salvages:
            raise ValueError("wrong checksum")
        last = batch.last_offset if batch.magic >= 2 else batch.base_offset
        if last < batch.base_offset:
            raise ValueError("its last offset lies before its first")
        if not intact:
            last = self._last_offset_salvaged(batch, records, last)
        self.bytes_read += batch.size_in_bytes
        try:
            if not intact:
                raise ValueError("wrong checksum")
            return (self._content_of(batch, tp) if self._is_for_us(batch) else ()), last + 1
        except Exception as error:  # noqa: BLE001 (whatever a codec or the client raises: the next batch may be fine)
            return [self._stand_in(batch, tp, last, error)], last + 1

    def _last_offset_salvaged(self, batch: ABCRecordBatch, records: MemoryRecords, last: int) -> int:
        """Where a damaged batch ends, if what its header says fits its neighbours; else ValueError."""
        following = records._next_slice
        if following is not None:
            last = min(last, int.from_bytes(following[:8], "big", signed=True) - 1)
        if not batch.base_offset <= self.next_fetch_offset <= last:
            raise ValueError("wrong checksum, and its offsets fit nothing")
        return last

    def _content_of(self, batch: ABCRecordBatch, tp: kafka.TopicPartition) -> Sequence[Read]:
        return _unpacked(batch, tp.topic, tp.partition)

    def _stand_in(self, batch: ABCRecordBatch, tp: kafka.TopicPartition, last: int, error: Exception) -> Read:
        lost, raw = _lost(batch, last, error), bytes(batch._buffer)
        at = _time_of(batch.max_timestamp if batch.magic >= 2 else None)
        value = UnreadableBatch.of(raw, lost)
        return Received(tp.topic, tp.partition, batch.base_offset, at, None, value, [])

    def _is_for_us(self, batch: ABCRecordBatch) -> bool:
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


class SalvagedRecords(LeanRecords):
    """The same, going on behind a damaged batch: an operator has accepted that, or nothing is committed."""

    salvages = True


def _lost(batch: ABCRecordBatch, last: int, error: Exception) -> str:
    offsets = f"offsets {batch.base_offset} to {last}" if batch.magic >= 2 else f"the offsets up to {last}"
    why = " ".join(str(error).split())[:300] or type(error).__name__
    return f"the batch of {offsets} cannot be read by anybody: {why}"


def unpack_only_newest(consumer: kafka.KafkaConsumer) -> kafka.KafkaConsumer:
    """Let the consumer give a NewestOfBatch for each batch in place of its records."""
    consumer._fetcher.PartitionRecords = NewestRecords
    return consumer


@dataclass(frozen=True, slots=True)
class NewestOfBatch:
    """The last value of each key in a batch; `offset` is that of its last record, `timestamp` its newest (ms).

    One that cannot be read has a single key, UNREADABLE and its offsets, whose value is its text.
    """

    offset: int
    timestamp: int
    values: dict[bytes, bytes | None]


Read = Received | NewestOfBatch


class NewestRecords(SalvagedRecords):
    """What was fetched of a compacted topic, as the last value of each key in a batch."""

    def _content_of(self, batch: ABCRecordBatch, tp: kafka.TopicPartition) -> Sequence[Read]:
        if batch.magic < 2:
            return [
                NewestOfBatch(record.offset, record.timestamp, {record.key or b"": record.value})
                for record in _legacy(batch, tp.topic, tp.partition)
            ]
        data, whole = _data_of(batch)
        if not whole:
            raise ValueError(TOO_LARGE)
        return [NewestOfBatch(batch.last_offset, batch.max_timestamp, unpack_newest(data, batch.records_count))]

    def _stand_in(self, batch: ABCRecordBatch, tp: kafka.TopicPartition, last: int, error: Exception) -> Read:
        key = UNREADABLE + f"offsets {batch.base_offset} to {last}".encode()
        return NewestOfBatch(last, 0, {key: _lost(batch, last, error).encode()})


def _data_of(batch: ABCRecordBatch) -> tuple[bytes, bool]:
    """The batch without its header, and whether it is all of it."""
    data = bytes(memoryview(batch._buffer)[batch._pos :])
    if batch.compression_type:
        return decompress(batch.compression_type, data, settings.KAFKA_MAX_BATCH_BYTES)
    return data, True


def _unpacked(batch: ABCRecordBatch, topic: str, partition: int) -> list[Received]:
    if batch.magic < 2:
        return _legacy(batch, topic, partition)
    data, whole = _data_of(batch)
    place = (topic, partition, batch.base_offset)
    if whole:
        received = unpack(data, 0, batch.records_count, place, batch.first_timestamp)
    else:
        received = unpack_beginning(data, place, batch.first_timestamp, batch.last_offset)
    if received and received[-1].offset > batch.last_offset:
        raise ValueError(f"it holds offset {received[-1].offset}")
    if len(data) > WHOLE_BYTES:
        for record in received:
            record.value = keepable(record.value)
    if batch.timestamp_type == batch.LOG_APPEND_TIME:
        for record in received:
            record.timestamp = batch.max_timestamp
    return received


def _legacy(batch: ABCRecordBatch, topic: str, partition: int) -> list[Received]:
    """Written before Kafka 0.11: read by the client's own code, which trusts the lengths in a compressed one."""
    if batch.compression_type and (batch.magic or batch.compression_type != batch.CODEC_LZ4):
        _key, value = batch._read_key_value(batch.KEY_OFFSET_V1 if batch.magic else batch.KEY_OFFSET_V0)
        data, whole = decompress(batch.compression_type, value or b"", settings.KAFKA_MAX_BATCH_BYTES)
        if not whole:
            raise ValueError(TOO_LARGE)
        batch._buffer, batch._decompressed = memoryview(_checked(data)), True
    received = [
        Received(topic, partition, r.offset, _time_of(r.timestamp), r.key, keepable(r.value), r.headers) for r in batch
    ]
    offsets = [record.offset for record in received]
    if offsets != sorted(set(offsets)) or not 0 <= offsets[0] <= offsets[-1] <= batch.base_offset:
        raise ValueError("the offsets of its records do not rise to its own")
    return received


def _checked(data: bytes) -> bytes:
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if not 0 < length <= len(data) - at - 12:
            raise ValueError(f"a record of {length} bytes")
        at += 12 + length
    return data


def _time_of(timestamp: int | None) -> int:
    """The oldest format has no times."""
    return -1 if timestamp is None else max(-FURTHEST, min(timestamp, FURTHEST))


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
    topic_id = consumer._client.cluster.topic_id(topic)
    return str(topic_id) if topic_id and topic_id.int else ""


def watch(consumer: kafka.KafkaConsumer, topics: Iterable[str]) -> None:
    """Keep metadata of these topics as well as of those that are read; nobody joins again because of them."""
    for topic in topics:
        consumer._client.cluster.add_topic(topic)


def partition_count(consumer: kafka.KafkaConsumer, topic: str) -> int:
    """How many partitions the topic had when the metadata was last refreshed, without asking; 0 when not known."""
    return len(consumer._client.cluster.partitions_for_topic(topic) or ())


def committed_of(
    consumer: kafka.KafkaConsumer, tps: Sequence[kafka.TopicPartition], timeout_ms: int
) -> dict[kafka.TopicPartition, int]:
    """The group's committed offsets of these partitions in one request; KafkaTimeoutError while some are pending.

    The public call asks for one partition at a time, each with a limit of its own. An answer that came too late for
    the last call would be taken for that to this one.
    """
    consumer._coordinator._offset_fetch_futures.clear()
    offsets = consumer._coordinator.fetch_committed_offsets(tps, timeout_ms=timeout_ms)
    return {tp: committed.offset for tp, committed in offsets.items() if committed.offset >= 0}


def committed_before(
    consumer: kafka.KafkaConsumer, tps: Sequence[kafka.TopicPartition], timeout_ms: int
) -> dict[kafka.TopicPartition, int]:
    """The same without what open transactions may still commit: a broker that is there answers at once."""
    with _uncommitted(consumer._coordinator):
        return committed_of(consumer, tps, timeout_ms)


def ends_of_logs(
    consumer: kafka.KafkaConsumer, tps: Sequence[kafka.TopicPartition], timeout_ms: int
) -> dict[kafka.TopicPartition, int]:
    """The ends as a reader of uncommitted records sees them, on a read-committed connection.

    A committed reader's end lies before the oldest open transaction, whoever left it open.
    """
    with _uncommitted(consumer._fetcher):
        return dict(consumer.end_offsets(tps, timeout_ms=timeout_ms))


@contextmanager
def _uncommitted(asking: Fetcher | ConsumerCoordinator) -> Iterator[None]:
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


async def commit_inside(
    consumer: kafka.KafkaConsumer, offsets: Mapping[kafka.TopicPartition, kafka.OffsetAndMetadata], timeout_ms: int
) -> None:
    """Commit inside a rebalance callback, where the client refuses every call that blocks."""
    await consumer._coordinator._commit_offsets_sync_async(offsets, timeout_ms)
