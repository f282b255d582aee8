"""Brokers for wire-level tests: the embedded one always, Apache Kafka where it runs."""

import os
import uuid

import pytest

from tests.crash.wire import wait_for
from tests.services.embedded import FaultyKafka


@pytest.fixture(params=["embedded", "kafka"])
def broker(request, settings):
    """A broker the settings point at, with a topic prefix of this test's own; the embedded one, or None."""
    settings.KAFKA_TOPIC_PREFIX = f"t{uuid.uuid4().hex[:8]}."
    if request.param == "kafka":
        servers = os.environ.get("TEST_KAFKA_SERVERS")
        if not servers:
            pytest.skip("TEST_KAFKA_SERVERS names no Apache Kafka")
        settings.KAFKA_BOOTSTRAP_SERVERS = servers.split(",")
        yield None
        return
    with FaultyKafka() as embedded:
        settings.KAFKA_BOOTSTRAP_SERVERS = [embedded.bootstrap_servers]
        settings.KAFKA_API_VERSION = (2, 3)
        settings.KAFKA_SESSION_TIMEOUT_MS = 2000
        yield embedded


@pytest.fixture
def make_topic(broker):
    """Create a topic by its contract name; returns the full name."""
    from config.kafka import client
    from config.kafka.topics import topic_name

    def make(name: str, partitions: int = 1, **config: str) -> str:
        full = topic_name(name)
        if broker is not None:
            broker.create_topic(full, partitions)
            return full
        admin = client.new_admin()
        admin.create_topics({full: {"num_partitions": partitions, "replication_factor": 1, "configs": config}})
        wait_for(lambda: full in admin.list_topics(), 30, f"{name} to be known")  # the controller knows it before
        admin.close()
        return full

    return make
