"""Records that are small on the broker and huge in memory: a dead letter each, and what lies behind them goes on."""

from __future__ import annotations

from typing import Any

import kafka
import pytest

from outbox.letters.models import DeadLetter
from tests.conftest import order
from tests.crash.platform import Platform
from tests.crash.wire import REQUESTS, wait_for
from tests.processes.conftest import Broker, assert_verified

pytestmark = pytest.mark.parametrize("broker", ["kafka"], indirect=True)
LARGE, VAST = 20_000_000, 100_000_000


def send(broker: Broker, codec: str, *values: bytes) -> None:
    """Without our limits, to one partition."""
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.environment["KAFKA_BOOTSTRAP_SERVERS"], compression_type=codec,
        max_request_size=2 * VAST, linger_ms=50, batch_size=10_000,
    )  # fmt: skip
    futures = [
        producer.send(broker.environment["KAFKA_TOPIC_PREFIX"] + REQUESTS, value, partition=0) for value in values
    ]
    for future in futures:
        future.get(60)
    producer.close()


def test_what_grows_beyond_any_limit_is_a_letter_and_holds_nobody_up(
    broker: Broker, both: Any, workers: Platform
) -> None:
    both()
    send(broker, "gzip", b"7" * LARGE, order("A1"))
    send(broker, "zstd", b"7" * VAST, order("A2"))
    send(broker, "lz4", order("A3"))
    send(broker, "snappy", order("A4"))
    broker.wait_for_orders("A1", "A2", "A3", "A4")
    wait_for(lambda: DeadLetter.objects.count() == 2, 30, "two letters")
    large, vast = DeadLetter.objects.order_by("offset")
    assert {large.reason, vast.reason} == {"too_large"}
    assert (large.payload_size, len(large.payload_sha256)) == (LARGE, 64)
    assert (vast.payload_size, vast.payload_sha256) == (VAST, "")
    assert "KAFKA_MAX_BATCH_BYTES" in vast.error
    assert_verified()
