"""Where workers listen for /metrics."""

import pytest
from django.core.management import CommandError, call_command

from config.telemetry import metrics


def test_only_this_machine_reads_the_metrics_of_a_worker(monkeypatch):
    asked = []
    monkeypatch.setattr(metrics, "start_http_server", lambda port, addr: asked.append((addr, port)))
    metrics.serve(9101)
    metrics.serve(0)
    assert asked == [("127.0.0.1", 9101)]


def test_a_host_that_is_not_ours_is_named(settings):
    settings.METRICS_HOST = "203.0.113.1"
    with pytest.raises(CommandError, match=r"METRICS_HOST=203.0.113.1 --metrics-port 9101: "):
        call_command("flush_buffer", "--once", "--metrics-port", "9101")
