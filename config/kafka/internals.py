"""All that Spillway uses of kafka-python's private attributes; a test says which of them a new release changed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import kafka
import kafka.errors
from django.conf import settings
from kafka.consumer.fetcher import Fetcher, IsolationLevel
from kafka.producer.future import FutureRecordMetadata
from kafka.producer.producer_batch import ProducerBatch

from config.digest import WHOLE_BYTES, keepable
from config.kafka.decompress import decompress
from config.kafka.format.pack import PackedRecords
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
    """The last value of each key in a batch; `offset` is that of its last record."""

    offset: int
    values: dict[bytes, bytes | None]


class NewestRecords(LeanRecords):
    """What was fetched of a compacted topic, of which nobody wants to know more than the last value of each key."""

    def _content_of(self, batch: Any, tp: Any) -> Sequence[Any]:
        if batch.magic < 2:
            return [NewestOfBatch(r.offset, {r.key or b"": r.value}) for r in batch]
        data, whole = _data_of(batch)
        if not whole:
            raise ValueError("its batch is larger than KAFKA_MAX_BATCH_BYTES allows")
        return [NewestOfBatch(batch.last_offset, unpack_newest(data, batch.records_count))]


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


def close_producer(producer: kafka.KafkaProducer, timeout: float) -> None:
    """Give the producer `timeout` seconds to send what it holds, then drop the rest and end its thread.

    Its own close() gives up after that time and leaves the thread running for ever.
    """
    try:
        producer.close(timeout=timeout)
    except kafka.errors.KafkaError:
        producer._sender.force_close()
        producer._sender.join(timeout)
        producer.close(timeout=0)


def drop_producer(producer: kafka.KafkaProducer) -> None:
    """End the producer's thread without waiting for what it holds; it may outlive this call by one request."""
    producer._sender.force_close()
    producer._sender.join(0.2)
    try:
        producer.close(timeout=0)
    except kafka.errors.KafkaError:
        producer._closed = True  # otherwise its destructor waits again


def send_batch(producer: kafka.KafkaProducer, topic: str, partition: int, records: PackedRecords) -> ProducerBatch:
    """Send packed records in the transaction in hand, once the thread is woken; its own send() takes them one by one.

    Raises what that raises: KafkaError, or ValueError when the topic has no such partition.
    """
    if partition not in producer.partitions_for(topic):
        raise ValueError(f"{topic} has no partition {partition}")
    place, accumulator = kafka.TopicPartition(topic, partition), producer._accumulator
    producer._transaction_manager.maybe_add_partition_to_transaction(place)
    batch = ProducerBatch(place, records)
    batch._record_futures = RecordFutures(batch.produce_future, records.count)
    accumulator._appends_in_progress.increment()  # a client that is closed meanwhile ends this batch as well
    try:
        with accumulator._tp_lock(place):
            if accumulator._closed:
                raise kafka.errors.IllegalStateError("the client is closed")
            accumulator._batches[place].append(batch)
            accumulator._incomplete.add(batch)
    finally:
        accumulator._appends_in_progress.decrement()
    return batch


def wake(producer: kafka.KafkaProducer) -> None:
    """Let the producer's thread see what there is to send."""
    producer._sender.wakeup()


class RecordFutures:
    """The futures of a batch's records. Only a batch that the client splits, because it is too large, needs them."""

    def __init__(self, of_batch: Any, count: int) -> None:
        self.of_batch, self.count = of_batch, count
        self.made: list[FutureRecordMetadata] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> FutureRecordMetadata:
        if not self.made:
            self.made = [FutureRecordMetadata(self.of_batch, i, -1, None, -1, -1, -1) for i in range(self.count)]
        return self.made[index]


def errors_of(batch: ProducerBatch, deadline: float) -> list[tuple[int, Exception]]:
    """Wait for the answer to a batch; which of its records failed, and why. Raises KafkaTimeoutError."""
    answer = batch.produce_future
    if not answer.wait(max(0.0, deadline - time.monotonic())):
        raise kafka.errors.KafkaTimeoutError("no answer within the limit")
    if answer.is_done:
        error_of = answer.value[2]
        return [(index, error_of(index)) for index in range(batch.record_count)] if error_of else []
    found = []  # split: each half has an answer of its own, and the futures were moved there before we woke
    for index, future in enumerate(batch._record_futures.made):
        try:
            future.get(timeout=max(0.0, deadline - time.monotonic()))
        except kafka.errors.KafkaError as error:
            if not future.is_done:
                raise
            found.append((index, error))
    return found


def init_transactions(producer: kafka.KafkaProducer) -> Any:
    """What init_transactions() waits for, to be waited for with a limit."""
    return _asked(producer, producer._transaction_manager.initialize_transactions())


def send_offsets(producer: kafka.KafkaProducer, offsets: dict[Any, Any], metadata: Any) -> Any:
    """What send_offsets_to_transaction() waits for without a limit."""
    return _asked(producer, producer._transaction_manager.send_offsets_to_transaction(offsets, metadata))


def begin_commit(producer: kafka.KafkaProducer) -> Any:
    """What commit_transaction() waits for without a limit."""
    return _asked(producer, producer._transaction_manager.begin_commit())


def begin_abort(producer: kafka.KafkaProducer) -> Any:
    """What abort_transaction() waits for without a limit."""
    return _asked(producer, producer._transaction_manager.begin_abort())


def _asked(producer: kafka.KafkaProducer, result: Any) -> Any:
    producer._sender.wakeup()
    return result


def is_fenced(consumer: kafka.KafkaConsumer) -> bool:
    """Whether another process took this member's name; poll() would stay silent for ever.

    The client then ends its heartbeats and changes nothing else. They are also off during a join, and before it.
    """
    coordinator = consumer._coordinator
    if coordinator.group_instance_id is None:
        return False
    with coordinator._lock:  # a finished join becomes stable first, then turns them on
        return coordinator.stable() and not coordinator._heartbeat_enabled and not coordinator.rejoining


def topic_id_of(consumer: kafka.KafkaConsumer, topic: str) -> str:
    """The topic's id, or "" where the broker is too old to have one.

    The cluster metadata is the one place where kafka-python keeps it without another request.
    """
    found = consumer._client.cluster.topic_id(topic)
    return str(found) if found and found.int else ""


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


def keep_rejoining(consumer: kafka.KafkaConsumer) -> None:
    """Let the next poll finish a rejoin that outlasted the last one.

    kafka-python 3.0.12 forgets it when new metadata was its cause: the member has sent its JoinGroup, never
    takes up the answer, and stays in the group without partitions until the broker throws it out.
    """
    if consumer._coordinator.rejoining:
        consumer._coordinator.request_rejoin()


async def nap(consumer: kafka.KafkaConsumer, seconds: float) -> None:
    """Wait inside a rebalance callback: it runs on the client's own thread, heartbeats go on meanwhile."""
    await consumer._net.sleep(seconds)


async def commit_inside(consumer: kafka.KafkaConsumer, offsets: dict[Any, Any], timeout_ms: int) -> None:
    """Commit inside a rebalance callback, where the client refuses every call that blocks."""
    await consumer._coordinator._commit_offsets_sync_async(offsets, timeout_ms)
