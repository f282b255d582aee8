"""The only module that imports kafka-python: connections with the options Spillway depends on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import kafka
import kafka.errors
from django.conf import settings
from kafka import OffsetAndMetadata as OffsetAndMetadata
from kafka import TopicPartition as TopicPartition
from kafka.consumer.fetcher import Fetcher, IsolationLevel

from config.kafka.unpack import Received, unpack

KafkaError = kafka.errors.KafkaError
RetriableError = kafka.errors.RetriableError
KafkaTimeoutError = kafka.errors.KafkaTimeoutError
AuthorizationError = kafka.errors.AuthorizationError
OffsetOutOfRangeError = kafka.errors.OffsetOutOfRangeError
NoOffsetForPartitionError = kafka.errors.NoOffsetForPartitionError
CorruptRecordError = kafka.errors.CorruptRecordError
TopicAlreadyExistsError = kafka.errors.TopicAlreadyExistsError

MAX_REQUEST_BYTES = 1_048_576


def connection_options() -> dict[str, Any]:
    """Options every client shares: where the broker is and how to prove who we are."""
    options: dict[str, Any] = {
        "bootstrap_servers": settings.KAFKA_BOOTSTRAP_SERVERS,
        "security_protocol": settings.KAFKA_SECURITY_PROTOCOL,
        "api_version": settings.KAFKA_API_VERSION,
        "bootstrap_timeout_ms": 10_000,
        "reconnect_backoff_max_ms": 2_000,
    }
    optional = {
        "sasl_mechanism": settings.KAFKA_SASL_MECHANISM,
        "sasl_plain_username": settings.KAFKA_SASL_USERNAME,
        "sasl_plain_password": settings.KAFKA_SASL_PASSWORD,
        "ssl_cafile": settings.KAFKA_SSL_CAFILE,
    }
    return {**options, **{name: value for name, value in optional.items() if value}}


def new_consumer(group: str | None, **overrides: Any) -> kafka.KafkaConsumer:
    """A consumer that never commits, resets or reads aborted records by itself (its defaults do all three)."""
    session = settings.KAFKA_SESSION_TIMEOUT_MS
    options: dict[str, Any] = {
        **connection_options(),
        "group_id": group,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "isolation_level": "read_committed",
        "session_timeout_ms": session,
        "heartbeat_interval_ms": max(session // 5, 300),
        "max_poll_records": settings.KAFKA_POLL_RECORDS,
        "fetch_max_bytes": 16 * 1024 * 1024,
        "fetch_max_wait_ms": 100,
        "allow_auto_create_topics": False,
        "metadata_max_age_ms": 30_000,
        "metrics_enabled": False,
    }
    consumer = kafka.KafkaConsumer(**{**options, **overrides})
    consumer._fetcher.PartitionRecords = LeanRecords
    return consumer


class LeanRecords(Fetcher.PartitionRecords):
    """What was fetched of a partition, unpacked by us: the client's way takes 40 % of an ingester's time.

    The checks of a whole batch (checksum, aborted transactions, control marks) remain the client's own.
    """

    def _unpack_records(self, tp: Any, records: Any, *_deserializers: Any) -> Iterator[Received]:
        while (batch := records.next_batch()) is not None:
            for record in self._records_of(batch, tp):
                self.next_fetch_offset = record.offset + 1
                yield record
            if batch.magic >= 2:  # compaction may have taken its last records
                self.next_fetch_offset = batch.next_offset
        self.drain()

    def _records_of(self, batch: Any, tp: Any) -> Sequence[Received]:
        try:
            if self.check_crcs and not batch.validate_crc():
                raise ValueError("wrong checksum")
            self.bytes_read += batch.size_in_bytes
            return unpack(batch, tp.topic, tp.partition) if self._is_for_us(batch) else ()
        except (ValueError, IndexError) as error:
            raise CorruptRecordError(
                f"{tp.topic}/{tp.partition} from {batch.base_offset}: {error}"
            ) from error

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


def new_producer(**overrides: Any) -> kafka.KafkaProducer:
    """An idempotent producer that waits for all replicas."""
    options: dict[str, Any] = {
        **connection_options(),
        "acks": "all",
        "enable_idempotence": True,
        "linger_ms": 20,  # until the producer says that all is there
        "batch_size": 256 * 1024,
        "delivery_timeout_ms": 30_000,
        "request_timeout_ms": 10_000,
        "max_block_ms": 10_000,
        "max_request_size": MAX_REQUEST_BYTES,
        "allow_auto_create_topics": False,
        "metrics_enabled": False,
    }
    return kafka.KafkaProducer(**{**options, **overrides})


def close_producer(producer: kafka.KafkaProducer, timeout: float) -> None:
    """Let it send what it holds for `timeout` seconds, then drop the rest.

    Its own close() gives up where that time runs out, and leaves its thread running for ever.
    """
    try:
        producer.close(timeout=timeout)
    except KafkaError:
        producer._sender.force_close()
        producer._sender.join(timeout)
        producer.close(timeout=0)


def new_admin() -> kafka.KafkaAdminClient:
    """An administration client; the embedded broker has no administration API."""
    return kafka.KafkaAdminClient(**connection_options(), request_timeout_ms=10_000)


def topic_id_of(consumer: kafka.KafkaConsumer, topic: str) -> str:
    """The topic's id, or "" where the broker is too old to have one.

    The cluster metadata is the one place where kafka-python keeps it without another request.
    """
    found = consumer._client.cluster.topic_id(topic)
    return str(found) if found and found.int else ""


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
