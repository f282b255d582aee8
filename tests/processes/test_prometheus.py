"""A real Prometheus scrapes the demo: panels have numbers, rules are evaluated, and the catalogue is whole."""

from __future__ import annotations

import math
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from config.flows import flows
from config.telemetry import metrics
from notifications.models import OrderEvent
from tests.config.processes.test_platform import free_ports
from tests.crash.wire import wait_for
from tests.docs.test_dashboards import panels
from tests.docs.test_docs_complete import catalogue, exposed
from tests.drills.prometheus import Prometheus, installed
from tests.tree import ROOT, read

pytest.importorskip("confluent_kafka", reason="the embedded broker needs confluent-kafka")
# Those of the flows, the two replays, the notifier, beat, and the simulation.
WORKERS = sum(len(flow.workers()) for flow in flows()) + 5
PATIENCE = 240.0
# What no demo has, and the test that stages it.
STAGED = {
    "WEBHOOKS": "tests/notifications/webhooks/test_inbox.py",
    "REPLICA_LAG": "tests/config/admin/test_replica.py",
    "CDC_LEG_SECONDS": "tests/outbox/workers/test_listen.py",
    "CDC_LAG": "tests/outbox/test_flow.py",
    "NOTICES": "tests/outbox/notices/test_sender.py",
    "REPLAY_LETTERS": "tests/outbox/replay_batches/test_run.py",
    "RERUN": "tests/config/kafka/test_writer.py",
    "BISECTED": "tests/config/kafka/test_writer.py",
    "THROTTLER_STALLED": "tests/throttler/worker/test_away.py",
    "THROTTLER_OWNER_STARTS": "tests/throttler/test_flow.py",
}


@pytest.fixture
def prometheus(db: None, tmp_path: Path) -> Iterator[Prometheus]:
    """It watches a demo; both are gone afterwards."""
    if connection.vendor != "sqlite":
        pytest.skip("a demo brings its own database")
    program = installed()
    if not program:
        pytest.skip("prometheus is not installed (Debian package prometheus)")
    own = free_ports(WORKERS + 1)
    web = own + WORKERS
    demo = subprocess.Popen(
        [sys.executable, "manage.py", "run_all", "--demo", "--with-parent", f"--port={web}", f"--metrics-port={own}"],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "THROTTLER_OUTPUT_RATE": "1000/s"},
    )  # fmt: skip
    server = Prometheus(program, tmp_path, web, range(own, own + WORKERS))
    try:
        yield server
    finally:
        server.end()
        demo.kill()  # its guardian ends the rest
        demo.wait()
        wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", web)), 60, "the port to be free")
        folder = ROOT / "var" / "demo" / str(web)
        shutil.rmtree(folder, ignore_errors=True)
        folder.with_suffix(".lock").unlink(missing_ok=True)


@pytest.mark.parametrize(("name", "file"), STAGED.items())
def test_what_no_demo_has_is_staged_elsewhere(name: str, file: str) -> None:
    assert f"metrics.{name}" in read(ROOT / file) or exposed(getattr(metrics, name)) in read(ROOT / file)


def test_every_panel_has_finite_values_while_the_demo_runs(prometheus: Prometheus) -> None:
    # Without capture, replays and refused webhooks there is nothing to count: such panels say 0.
    waiting = {
        (name, panel["title"], target["expr"].replace("$__rate_interval", "1m"))
        for name, panel in panels()
        for target in panel["targets"]
    }
    wait_for(lambda: prometheus.up() == WORKERS + 1, PATIENCE, "every process to be scraped", 1)

    def all_answered() -> bool:
        for query in list(waiting):
            values = prometheus.values(query[2])
            if values and all(math.isfinite(value) for value in values):
                waiting.discard(query)  # of mails it may be true at one moment and not at the next
        return not waiting

    try:
        wait_for(all_answered, PATIENCE, "every panel to have values", 1)
    except AssertionError:
        raise AssertionError(sorted(waiting)) from None
    tries = prometheus.get("series", **{"match[]": "spillway_delivery_total"})
    types = {series["event_type"] for series in tries}
    assert types & set(OrderEvent.Kind.values)
    assert types <= {*OrderEvent.Kind.values, "other"}
    assert "other" in types  # what other services promised
    wanted = {exposed(metric) for metric in catalogue()} - {exposed(getattr(metrics, name)) for name in STAGED}
    wait_for(lambda: not wanted - prometheus.names(), PATIENCE, f"all of {sorted(wanted)} to be scraped", 1)
    (group,) = prometheus.get("rules")["groups"]
    assert {(rule["name"], rule["health"]) for rule in group["rules"] if rule["health"] != "ok"} == set()
