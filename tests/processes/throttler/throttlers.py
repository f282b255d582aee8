"""Throttler processes on the test database, with topics of their own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.crash.platform import Platform
from tests.crash.throttler.throttlers import Throttlers as Throttlers
from tests.crash.throttler.throttlers import has_partitions as has_partitions
from tests.crash.throttler.topics import READ_BY_VERIFY, ThrottlerWire
from tests.processes.conftest import database_url, kafka_servers
from tests.processes.proxy import BrokerGate

TIMINGS = {"KAFKA_SESSION_TIMEOUT_MS": "6000", "THROTTLER_DEFAULT_RATE": "5/s"}


@contextmanager
def throttlers_on(directory: Path, gate: BrokerGate | None = None, **more: str) -> Iterator[Throttlers]:
    """With a gate the workers, and nobody else, go through it; `more` environment for all of them."""
    wire = ThrottlerWire(kafka_servers(), f"t{uuid.uuid4().hex[:8]}.")
    through = {"KAFKA_BOOTSTRAP_SERVERS": gate.address} if gate else {}
    environment = {**TIMINGS, **wire.environment, **through, "DATABASE_URL": database_url(), **more}
    with Platform(directory, environment) as platform:
        platform.manage("create_topics", *READ_BY_VERIFY)
        found = Throttlers(platform, wire)
        try:
            yield found
        finally:
            found.close()
            wire.delete(*READ_BY_VERIFY)
