"""Connections to Kafka, with the options Spillway depends on."""

from __future__ import annotations

from typing import Any

import kafka
import kafka.errors
from django.conf import settings
from kafka import OffsetAndMetadata as OffsetAndMetadata
from kafka import TopicPartition as TopicPartition
from kafka.admin import ConfigResource as ConfigResource
from kafka.admin import ConfigResourceType as ConfigResourceType
from kafka.admin import MemberToRemove as MemberToRemove

from config.kafka.internals import DamagedBatch as DamagedBatch
from config.kafka.internals import unpack_leanly

KafkaError = kafka.errors.KafkaError
RetriableError = kafka.errors.RetriableError
KafkaTimeoutError = kafka.errors.KafkaTimeoutError
AuthorizationError = kafka.errors.AuthorizationError
OffsetOutOfRangeError = kafka.errors.OffsetOutOfRangeError
NoOffsetForPartitionError = kafka.errors.NoOffsetForPartitionError
InvalidSessionTimeoutError = kafka.errors.InvalidSessionTimeoutError
AUTHENTICATION_FAILED = (kafka.errors.SaslAuthenticationFailedError, kafka.errors.UnsupportedSaslMechanismError)
# What polling again does not mend: a person has to change a setting, a right or the group.
FATAL = (
    AuthorizationError,
    InvalidSessionTimeoutError,
    kafka.errors.FencedInstanceIdError,
    kafka.errors.GroupMaxSizeReachedError,
    kafka.errors.InconsistentGroupProtocolError,
    kafka.errors.InvalidGroupIdError,
)
UnknownTopicOrPartitionError = kafka.errors.UnknownTopicOrPartitionError
NoError = kafka.errors.NoError
FencedInstanceIdError = kafka.errors.FencedInstanceIdError
MessageSizeTooLargeError = kafka.errors.MessageSizeTooLargeError
# The broker says so of one record, and would say it again.
RECORD_REFUSED = (
    MessageSizeTooLargeError,
    kafka.errors.RecordListTooLargeError,
    kafka.errors.InvalidRecordError,
    kafka.errors.InvalidTimestampError,
    kafka.errors.InvalidTopicError,
)
# The broker does not take offsets of this generation or member any more.
GROUP_MOVED_ON = (
    kafka.errors.CommitFailedError,
    kafka.errors.IllegalGenerationError,
    kafka.errors.UnknownMemberIdError,
    kafka.errors.RebalanceInProgressError,
)
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
        "heartbeat_interval_ms": heartbeat_ms(),
        "max_poll_records": settings.KAFKA_POLL_RECORDS,
        "fetch_max_bytes": 16 * 1024 * 1024,
        "fetch_max_wait_ms": 100,
        "allow_auto_create_topics": False,
        "metadata_max_age_ms": 30_000,
        "metrics_enabled": False,
    }
    return unpack_leanly(kafka.KafkaConsumer(**{**options, **overrides}))


def heartbeat_ms() -> int:
    """How often a member of a group says that it is there."""
    return max(settings.KAFKA_SESSION_TIMEOUT_MS // 5, 300)


def new_producer(**overrides: Any) -> kafka.KafkaProducer:
    """An idempotent producer that waits for all replicas."""
    options: dict[str, Any] = {
        **connection_options(),
        "acks": "all",
        "enable_idempotence": True,
        "linger_ms": 20,  # Producer flushes when it has handed over everything
        "batch_size": 256 * 1024,
        "delivery_timeout_ms": 30_000,
        "request_timeout_ms": 10_000,
        "max_block_ms": 10_000,
        "max_request_size": MAX_REQUEST_BYTES,
        "allow_auto_create_topics": False,
        "metrics_enabled": False,
    }
    return kafka.KafkaProducer(**{**options, **overrides})


def new_transactional_producer(transactional_id: str, limit: float, **overrides: Any) -> kafka.KafkaProducer:
    """A producer of transactions none of whose own waits is longer than `limit` seconds."""
    milliseconds = int(limit * 1000)
    options: dict[str, Any] = {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": 10_000,
        "delivery_timeout_ms": milliseconds,
        "request_timeout_ms": milliseconds,
        "bootstrap_timeout_ms": milliseconds,
        "max_block_ms": milliseconds,
        "retry_backoff_ms": 5,  # the client waits this long between the requests of a transaction
        "linger_ms": 0,
    }
    return new_producer(**{**options, **overrides})


def new_admin(**overrides: Any) -> kafka.KafkaAdminClient:
    """An administration client; the embedded broker has no administration API."""
    return kafka.KafkaAdminClient(**{**connection_options(), "request_timeout_ms": 10_000, **overrides})
