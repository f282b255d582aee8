"""Whether the broker answers, what it is able to do, and what time it has."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from config.kafka import client

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
        with closing(client.new_admin(**patience)):
            return True
    except client.AUTHENTICATION_FAILED:
        return True  # it answers, if not to us
    except (client.KafkaError, OSError):
        return False


reachability = Reachability()


def transactions_supported(admin: client.kafka.KafkaAdminClient) -> bool:
    """Whether offsets sent with a transaction carry the member's generation.

    Without it the broker takes them from a member that the group has thrown out, so a message may leave twice.
    """
    versions = {int(key): most for key, (_, most) in admin.api_versions().items()}
    return versions.get(TXN_OFFSET_COMMIT, 0) >= WITH_GENERATION


def controller_skew(admin: client.kafka.KafkaAdminClient) -> timedelta | None:
    """How far the clock of Kafka's active controller is ahead of this machine's; None where nobody tells.

    No request asks a broker for the time. The active controller gives its own as the moment when it last fetched
    the log of metadata from itself.
    """
    try:
        asked = datetime.now(UTC)
        quorum = admin.describe_metadata_quorum()
        answered = datetime.now(UTC)
    except client.KafkaError:
        return None  # ZooKeeper, no right to describe the cluster, or the embedded broker
    (partition,) = quorum["topics"][0]["partitions"]
    for voter in partition["current_voters"]:
        if voter["replica_id"] == partition["leader_id"] and (told := voter.get("last_fetch_timestamp") or -1) > 0:
            return datetime.fromtimestamp(told / 1000, UTC) - (asked + (answered - asked) / 2)
    return None
