"""What Spillway uses of the private attributes of kafka-python's producer; those of the consumer are in internals.py."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

import kafka
import kafka.errors
from kafka.producer.future import FutureProduceResult, FutureRecordMetadata
from kafka.producer.producer_batch import ProducerBatch
from kafka.producer.transaction_manager import TransactionalRequestResult

from config.kafka.client import GroupMetadata, Offsets
from config.kafka.wire_format import HEADER, PackedRecords, packed, partition_of


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
    """Send packed records, in the transaction if there is one, once the thread is woken; its own send() takes them one
    by one.

    Raises what that raises: KafkaError, or ValueError when the topic has no such partition.
    """
    if partition not in producer.partitions_for(topic):
        raise ValueError(f"{topic} has no partition {partition}")
    place, accumulator = kafka.TopicPartition(topic, partition), producer._accumulator
    if producer._transaction_manager.is_transactional():
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


def send_record(
    producer: kafka.KafkaProducer, topic: str, partition: int | None, key: bytes | None, value: bytes | None,
    headers: list[tuple[str, bytes | None]],
) -> FutureRecordMetadata:  # fmt: skip
    """The producer's send(), for headers without a value as well: these it refuses."""
    if all(content is not None for _name, content in headers):
        return producer.send(topic, value, key, headers, partition)
    if partition is None:
        partition = partition_of(key or b"", len(producer.partitions_for(topic)))
    body = bytearray(HEADER.size) + packed(0, key, value, headers)
    batch = send_batch(producer, topic, partition, PackedRecords(body, 1, int(time.time() * 1000)))
    wake(producer)
    return batch._record_futures[0]


def wake(producer: kafka.KafkaProducer) -> None:
    """Let the producer's thread see what there is to send."""
    producer._sender.wakeup()


def topic_ids(producer: kafka.KafkaProducer, topics: Iterable[str], timeout: float) -> dict[str, str]:
    """The ids that these topics have now, "" where the broker is too old to have any; {} when it does not answer in time.

    What was acknowledged before is in the topic that has the id.
    """
    deadline = time.monotonic() + timeout
    metadata = producer._metadata
    # What is being asked already was asked before.
    for _ in range(2 if metadata.metadata_refresh_in_progress else 1):
        answered = threading.Event()
        asked = metadata.request_update()
        asked.add_both(lambda _answer, answered=answered: answered.set())
        wake(producer)
        if not answered.wait(max(0.0, deadline - time.monotonic())) or asked.failed():
            return {}
    found = {topic: metadata.topic_id(topic) for topic in topics}
    return {topic: str(topic_id) if topic_id and topic_id.int else "" for topic, topic_id in found.items()}


class RecordFutures:
    """The futures of a batch's records. Only a batch that the client splits, because it is too large, needs them."""

    def __init__(self, of_batch: FutureProduceResult, count: int) -> None:
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
    errors = []  # split: each half has an answer of its own, and the futures were moved there before we woke
    for index, future in enumerate(batch._record_futures.made):
        try:
            future.get(timeout=max(0.0, deadline - time.monotonic()))
        except kafka.errors.KafkaError as error:
            if not future.is_done:
                raise
            errors.append((index, error))
    return errors


def init_transactions(producer: kafka.KafkaProducer) -> TransactionalRequestResult:
    """What init_transactions() waits for, to be waited for with a limit."""
    return _asked(producer, producer._transaction_manager.initialize_transactions())


def send_offsets(
    producer: kafka.KafkaProducer, offsets: Offsets, metadata: GroupMetadata
) -> TransactionalRequestResult:
    """What send_offsets_to_transaction() waits for without a limit.

    kafka-python 3.0.12 keeps the offsets of a transaction that the group refused, and sends them with those of the next
    one, in the name of a member that has joined again: the committed offset of a partition of somebody else goes back.
    """
    manager = producer._transaction_manager
    manager._pending_txn_offset_commits.clear()  # one transaction after the other: nothing of it is on its way
    return _asked(producer, manager.send_offsets_to_transaction(offsets, metadata))


def begin_commit(producer: kafka.KafkaProducer) -> TransactionalRequestResult:
    """What commit_transaction() waits for without a limit."""
    return _asked(producer, producer._transaction_manager.begin_commit())


def begin_abort(producer: kafka.KafkaProducer) -> TransactionalRequestResult:
    """What abort_transaction() waits for without a limit."""
    return _asked(producer, producer._transaction_manager.begin_abort())


def _asked(producer: kafka.KafkaProducer, result: TransactionalRequestResult) -> TransactionalRequestResult:
    producer._sender.wakeup()
    return result
