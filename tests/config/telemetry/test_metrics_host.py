"""Where workers listen for /metrics, and how they say that they live."""

import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command

from config.telemetry import activity, metrics
from tests.crash.platform import free_port


def test_only_this_machine_reads_the_metrics_of_a_worker(monkeypatch):
    asked = []
    server = SimpleNamespace(set_app=lambda page: None)
    monkeypatch.setattr(metrics, "start_http_server", lambda port, addr: (asked.append((addr, port)) or server, None))
    metrics.serve(9101)
    metrics.serve(0)
    assert asked == [("127.0.0.1", 9101)]


def test_a_loop_that_does_not_come_round_is_not_alive(monkeypatch):
    """One that has not begun, or waits for its database, is: to start it again would not help."""
    doing = activity.Activity()
    monkeypatch.setattr(metrics, "activity", doing)
    metrics.serve(port := free_port())

    def status(path):
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5).status
        except urllib.error.HTTPError as error:
            return error.code

    assert status("/livez") == 200
    doing.came_round(0)
    assert status("/livez") == 200
    doing.round_at = time.monotonic() - activity.HANGS.total_seconds() - 1
    assert (status("/livez"), status("/metrics")) == (503, 200)


def test_a_host_that_is_not_ours_is_named(settings):
    settings.METRICS_HOST = "203.0.113.1"
    with pytest.raises(CommandError, match=r"METRICS_HOST=203.0.113.1 --metrics-port 9101: "):
        call_command("flush_buffer", "--once", "--metrics-port", "9101")
