"""A process exports the gauges that it sets, and no others: a zero that nobody measured is a lie."""

from __future__ import annotations

import subprocess
import sys

import pytest
from prometheus_client import Gauge

from config.probes import endpoints
from config.telemetry import metrics
from tests.tree import ROOT

# Every module a worker may load, and then what it would serve.
FRESH = """
import django; django.setup()
from importlib import import_module
from pathlib import Path
from django.core.management import load_command_class
for command in ("ingest_events", "flush_buffer", "track_inventory", "relay_outbox", "listen_outbox", "ingest_messages", "run_throttler"):
    apps = {"run": "throttler", "relay": "outbox", "listen": "outbox"}
    app = "outbox" if command == "ingest_messages" else apps.get(command.split("_")[0], "buffer")
    load_command_class(app, command)
from prometheus_client import REGISTRY
from config.telemetry import metrics
def gauges():
    return sorted((sample.name, sample.value) for metric in REGISTRY.collect() if metric.type == "gauge"
                  for sample in metric.samples if sample.name.startswith("spillway_"))
print(gauges())
metrics.set_own(metrics.THROTTLER_OUTPUT_SHARE, 0.5)
metrics.set_own(metrics.THROTTLER_OUTPUT_SHARE, 0.25)
metrics.CONSUMER_LAG_RECORDS.labels("g", "t", "0").set(7)
print(gauges())
"""


def test_a_worker_exports_no_gauge_before_it_sets_it():
    run = subprocess.run([sys.executable, "-c", FRESH], cwd=ROOT, capture_output=True, text=True, check=True)
    before, after = run.stdout.splitlines()
    assert before == "[]"
    assert after == "[('spillway_consumer_lag_records', 7.0), ('spillway_throttler_output_share', 0.25)]"


def test_a_gauge_without_labels_is_in_no_registry_from_the_start():
    gauges = [gauge for gauge in vars(metrics).values() if isinstance(gauge, Gauge)]
    assert len(gauges) > 20
    by_default = [gauge._name for gauge in gauges if gauge in metrics.REGISTRY._collector_to_names]
    # In this process, by other tests.
    set_by_others = {"spillway_throttler_output_share", "spillway_clock_ahead_seconds"}
    assert set(by_default) - set_by_others == {
        "spillway_partition_stopped", "spillway_consumer_lag_records", "spillway_throttler_stalled",
    }  # fmt: skip


@pytest.mark.django_db
def test_the_web_process_reads_each_of_them_from_the_database():
    read = {reading.gauge for reading in endpoints.read()}
    assert metrics.OUTBOX_PENDING in read
    assert metrics.CDC_LAG not in read  # no listener was ever started: a gap
