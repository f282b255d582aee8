"""Connections to Kafka with the options Spillway depends on, and what the broker is able to do."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

import kafka
import kafka.errors
from django.conf import settings
from kafka import OffsetAndMetadata as OffsetAndMetadata
from kafka import TopicPartition as TopicPartition
from kafka.admin import ConfigResource as ConfigResource
from kafka.admin import ConfigResourceType as ConfigResourceType
from kafka.admin import MemberToRemove as MemberToRemove
from kafka.structs import OffsetAndTimestamp

from config.kafka.access import NotLetIn as NotLetIn
from config.kafka.access import access_options
from config.kafka.connection_internals import ExplainingClient
from config.kafka.internals import DamagedBatch as DamagedBatch
from config.kafka.internals import unpack_leanly
from config.kafka.records import Record
from config.kafka.tokens import TokenUnavailable
from config.telemetry.redaction import one_line

KafkaError = kafka.errors.KafkaError
RetriableError = kafka.errors.RetriableError
KafkaTimeoutError = kafka.errors.KafkaTimeoutError
AuthorizationError = kafka.errors.AuthorizationError
OffsetOutOfRangeError = kafka.errors.OffsetOutOfRangeError
NoOffsetForPartitionError = kafka.errors.NoOffsetForPartitionError
LogTruncationError = kafka.errors.LogTruncationError
# The log does not hold what is to be read next of some partitions.
OUT_OF_RANGE = (OffsetOutOfRangeError, NoOffsetForPartitionError, LogTruncationError)
InvalidSessionTimeoutError = kafka.errors.InvalidSessionTimeoutError
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
InvalidReplicationFactorError = kafka.errors.InvalidReplicationFactorError

MAX_REQUEST_BYTES = 1_048_576
NEW_TOPIC = 10.0  # seconds until every broker knows it, of several that are busy
Offsets = dict[TopicPartition, OffsetAndMetadata]


class GroupMetadata(Protocol):
    """Who a member of a group is, in one generation: a transaction names it, so that the broker can refuse an old one."""

    @property
    def group_id(self) -> str: ...
    @property
    def generation_id(self) -> int: ...  # -1: in no group
    @property
    def member_id(self) -> str: ...
    @property
    def group_instance_id(self) -> str | None: ...


class Client(Protocol):
    """What is used of a `kafka.KafkaConsumer`; its private parts are in internals.py. Its calls raise KafkaError."""

    def assign(self, partitions: Sequence[TopicPartition]) -> None: ...
    def assignment(self) -> set[TopicPartition]: ...
    def beginning_offsets(self, partitions: Sequence[TopicPartition], timeout_ms: int) -> dict[TopicPartition, int]: ...
    def close(self, autocommit: bool, timeout_ms: int | None = None) -> None: ...
    def commit(self, offsets: Offsets, timeout_ms: int) -> None: ...
    def commit_async(self, offsets: Offsets) -> object: ...
    def end_offsets(self, partitions: Sequence[TopicPartition], timeout_ms: int) -> dict[TopicPartition, int]: ...
    def group_metadata(self) -> GroupMetadata: ...
    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]: ...
    def partitions_for_topic(self, topic: str) -> set[int] | None: ...
    def paused(self) -> set[TopicPartition]: ...
    def pause(self, *partitions: TopicPartition) -> None: ...
    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[Record]]: ...
    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int: ...
    def resume(self, *partitions: TopicPartition) -> None: ...
    def seek(self, partition: TopicPartition, offset: int) -> None: ...
    def subscribe(self, topics: Sequence[str], listener: kafka.AsyncConsumerRebalanceListener) -> None: ...


def places_of(error: kafka.errors.KafkaError) -> set[tuple[str, int]]:
    """The partitions that one of OUT_OF_RANGE names."""
    return set(error.divergent_offsets if isinstance(error, LogTruncationError) else error.args[0])


def connection_options() -> dict[str, object]:
    """Options every client shares: where the broker is and how to prove who we are. Raises NotLetIn."""
    return {
        "bootstrap_servers": settings.KAFKA_BOOTSTRAP_SERVERS,
        "api_version": settings.KAFKA_API_VERSION,
        "bootstrap_timeout_ms": 10_000,
        "reconnect_backoff_max_ms": 2_000,
        "kafka_client": ExplainingClient,
        **access_options(),
    }


def in_one_line(error: kafka.errors.KafkaError) -> str:
    """What went wrong with Kafka, beginning with the setting to look at."""
    if isinstance(error, NotLetIn | TokenUnavailable):
        return one_line(error)
    return f"KAFKA_BOOTSTRAP_SERVERS={','.join(settings.KAFKA_BOOTSTRAP_SERVERS)}: {one_line(error)}"


def new_consumer(group: str | None, **overrides: object) -> Client:
    """A consumer that never commits, resets or reads aborted records by itself (its defaults do all three)."""
    session = settings.KAFKA_SESSION_TIMEOUT_MS
    options: dict[str, object] = {
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


def new_producer(**overrides: object) -> kafka.KafkaProducer:
    """An idempotent producer that waits for all replicas."""
    options: dict[str, object] = {
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


def count_partitions(consumer: Client, topic: str) -> int:
    """How many partitions the topic has; 0 when it is still unknown NEW_TOPIC seconds after the first question.

    A broker hears of a new topic from the controller, and under load after the command that made it has ended. Whoever
    starts right behind that command must not take the topic for missing. Waits for a broker that is away.
    """
    deadline = time.monotonic() + NEW_TOPIC
    partitions = set[int]()
    while not partitions and time.monotonic() < deadline:
        # Where the client is asking for its only topic already, the broker's answer is raised here.
        with suppress(UnknownTopicOrPartitionError):
            partitions = consumer.partitions_for_topic(topic) or set()
        if not partitions:
            time.sleep(0.1)
    return len(partitions)


def new_transactional_producer(transactional_id: str, limit: float, **overrides: object) -> kafka.KafkaProducer:
    """A producer of transactions none of whose own waits is longer than `limit` seconds."""
    milliseconds = int(limit * 1000)
    options: dict[str, object] = {
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


def new_admin(**overrides: object) -> kafka.KafkaAdminClient:
    """An administration client; the embedded broker has no administration API."""
    return kafka.KafkaAdminClient(**{**connection_options(), "request_timeout_ms": 10_000, **overrides})


# -- What the broker is able to do, and its clock ------------------------------------------------------------
TXN_OFFSET_COMMIT, WITH_GENERATION = 28, 3  # KIP-447, Kafka 2.5
NO_TRANSACTIONS = (
    "KAFKA_TRANSACTIONS is on, but offsets in a transaction are not checked against the group (Kafka before 2.5, or "
    "KAFKA_API_VERSION below it): a newer broker, or KAFKA_TRANSACTIONS=off"
)
ASKED_FOR_MS = 2000
REMEMBER = 10.0  # seconds


@dataclass
class Reachability:
    """Whether Kafka answers this process: asked once in ten seconds, by whoever wants to know first."""

    until: float = 0.0
    answer: bool = True
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self) -> bool:
        with self.lock:
            if time.monotonic() >= self.until:
                self.answer = _answers()
                self.until = time.monotonic() + REMEMBER
            return self.answer


def _answers() -> bool:
    patience = {"bootstrap_timeout_ms": ASKED_FOR_MS, "request_timeout_ms": ASKED_FOR_MS}
    try:
        with closing(new_admin(**patience)):
            return True
    except NotLetIn:
        return True  # it answers, if not to us
    except (KafkaError, OSError):
        return False


reachability = Reachability()


def transactions_supported(admin: kafka.KafkaAdminClient) -> bool:
    """Whether offsets sent with a transaction carry the member's generation.

    Without it the broker takes them from a member that the group has thrown out, so a message may leave twice.
    """
    versions = {int(key): most for key, (_, most) in admin.api_versions().items()}
    return versions.get(TXN_OFFSET_COMMIT, 0) >= WITH_GENERATION


def silent_brokers(admin: kafka.KafkaAdminClient) -> tuple[list[str], int]:
    """The brokers of the cluster at which nobody answers, and how many there are.

    One that is left alone goes on telling what it remembers: of the others, their topics and what is in sync.
    """
    places = [(str(broker["host"]), int(broker["port"])) for broker in admin.describe_cluster()["brokers"]]
    silent = [f"{host}:{port}" for host, port in places if not _accepts(host, port)] if len(places) > 1 else []
    return silent, len(places)


def _accepts(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), ASKED_FOR_MS / 1000):
            return True
    except OSError:
        return False


def controller_skew(admin: kafka.KafkaAdminClient) -> timedelta | None:
    """How far the clock of Kafka's active controller is ahead of this machine's; None where nobody tells.

    No request asks a broker for the time. The active controller gives its own as the moment when it last fetched
    the log of metadata from itself.
    """
    try:
        asked = datetime.now(UTC)
        quorum = admin.describe_metadata_quorum()
        answered = datetime.now(UTC)
    except KafkaError:
        return None  # ZooKeeper, no right to describe the cluster, or the embedded broker
    (partition,) = quorum["topics"][0]["partitions"]
    for voter in partition["current_voters"]:
        if (
            voter["replica_id"] == partition["leader_id"]
            and (fetched_ms := voter.get("last_fetch_timestamp") or -1) > 0
        ):
            return datetime.fromtimestamp(fetched_ms / 1000, UTC) - (asked + (answered - asked) / 2)
    return None
