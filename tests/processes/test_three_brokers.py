"""Kafka as a cluster of three: one broker may die under load of all flows, two are waited for, and nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.crash.wire import wait_for
from tests.processes.brokers import Brokers
from tests.processes.conftest import assert_verified, database_url
from tests.processes.everybody import everybody

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="two minutes, in which no database has a part"),
]


def test_one_broker_may_die_and_two_are_waited_for(tmp_path: Path, settings: Any) -> None:
    with (
        Brokers(tmp_path / "kafka") as brokers,
        everybody(tmp_path, settings, database_url(), brokers.servers, KAFKA_REPLICATION_FACTOR="-1") as platform,
    ):
        platform.get_on()
        told = platform.platform.manage("doctor", check=False).stdout
        assert "3 replicas, 2 of them have a write before it is acknowledged" in told
        brokers.kill(1)
        platform.get_on()
        told = platform.platform.manage("doctor", check=False).stdout
        assert "in sync are 2 of 3 replicas" in told
        brokers.kill(2)  # nobody may write now, and no two are left to decide anything
        silent = [worker for worker in platform.workers if worker.name == "ingest_events"]
        wait_for(lambda: "broker_unavailable" in silent[0].text, 120, "a worker to find no broker")
        brokers.start(1, 2)
        platform.get_on()
        platform.stop()
        platform.platform.manage("run_throttler", "--until-idle", "5")
        assert_verified()
