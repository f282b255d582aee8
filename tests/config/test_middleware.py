"""Health, readiness, metrics, the policy and the correlation id of every answer."""

import json
import logging
import re
import subprocess
import sys
from io import StringIO

import pytest
from django.db import OperationalError, ProgrammingError, connection
from django.urls import resolve
from prometheus_client.parser import text_string_to_metric_families

from config.database import tables
from config.database.clock import database_now
from config.middleware import POLICY, Sessions
from config.probes import endpoints
from config.telemetry.logs import line_formatter
from outbox.bookkeeping.models import Watermark
from tests.config.admin.conftest import _long_runway, _plain_http, boss  # noqa: F401 (fixtures)
from tests.conftest import order
from tests.logged import lines

pytestmark = pytest.mark.django_db


def test_the_root_leads_to_home(client):
    assert client.get("/").url == "/admin/"


def test_healthz_asks_nobody(client, django_assert_num_queries):
    with django_assert_num_queries(0):
        response = client.get("/healthz")
    assert response.json() == {"process": "ok"}
    assert response["Content-Security-Policy"] == POLICY


def test_readyz(client, monkeypatch):
    response = client.get("/readyz")
    assert response.status_code == 200
    assert response.json() == {"database": "ok", "migrations": "ok"}

    def away():
        raise OperationalError("no route to host db.internal")

    monkeypatch.setitem(endpoints.CHECKS, "database", away)
    monkeypatch.setitem(endpoints.CHECKS, "migrations", lambda: "failed: 2 not applied, run migrate")
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json() == {
        "database": "failed: OperationalError",
        "migrations": "failed: 2 not applied, run migrate",
    }


@pytest.mark.parametrize(("answer", "reads"), [("on", True), ("off", False), ("ON", True), (1, True), (0, False)])
def test_readyz_takes_a_server_that_only_reads_for_none(client, monkeypatch, answer, reads):
    sql = "SELECT %s" % (f"'{answer}'" if isinstance(answer, str) else answer)
    monkeypatch.setattr(tables, "READ_ONLY_SQL", {connection.vendor: sql})
    response = client.get("/readyz")
    said = "failed: the server only reads, as a standby does that is not promoted" if reads else "ok"
    assert (response.status_code, response.json()["database"]) == (503 if reads else 200, said)


@pytest.mark.skipif(connection.vendor != "postgresql", reason="a session can be told so on PostgreSQL")
def test_pages_and_readyz_of_a_server_that_only_reads_are_unavailable(boss, client, transactional_db):  # noqa: F811
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
    try:
        assert [client.get("/readyz").status_code, boss.get("/admin/").status_code] == [503, 503]
        page = client.post("/admin/login/", {"username": "boss", "password": "wrong"})
        assert (page.status_code, page["Retry-After"]) == (503, "10")
    finally:
        connection.close()


def samples(client):
    families = text_string_to_metric_families(client.get("/metrics").content.decode())
    return {
        (sample.name, *[value for _, value in sorted(sample.labels.items())]): sample.value
        for family in families
        for sample in family.samples
    }


def test_metrics_say_what_the_database_says(client, ingest, records):
    ingest(records(order("A1"), order("A2"), b"broken"))
    now = database_now()
    Watermark.objects.create(
        group="buffer-ingest", topic="transfer-requests", partition=3, next_offset=5, end_offset=9,
        caught_up_at=now, updated_at=now, alarm="created again",
    )  # fmt: skip
    found = samples(client)
    assert found["spillway_buffer_pending_events", "transfer-requests"] == 2
    assert found["spillway_dead_letters_open", "transfer-requests"] == 1
    assert found["spillway_consumer_lag_records", "buffer-ingest", "3", "transfer-requests"] == 4
    assert found["spillway_partition_stopped", "buffer-ingest", "3", "transfer-requests"] == 1
    assert found["spillway_partition_runway_days", "buffer_bufferedevent"] == 120
    assert 0 <= found["spillway_buffer_oldest_pending_seconds",] < 60


def test_each_metric_is_described_once(client):
    lines = client.get("/metrics").content.decode().splitlines()
    described = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(described) == len(set(described))
    assert "django_http_requests_before_middlewares_total" in described


def test_metrics_without_a_database_have_a_gap_and_no_zero(client, monkeypatch):
    def away():
        raise OperationalError("gone")

    monkeypatch.setattr(endpoints, "read", away)
    found = samples(client)
    assert not [key for key in found if key[0].startswith("spillway_buffer")]
    assert ("spillway_fence_lost_total",) in found


def test_metrics_of_several_processes(tmp_path):
    """With PROMETHEUS_MULTIPROC_DIR the stock view drops what is not in its files; ours does not."""
    program = (
        "import django; django.setup()\n"
        "from config.probes import endpoints as exporter\nfrom config.telemetry import metrics\n"
        "from config.flows import Reading\n"
        "metrics.FENCE_LOST.inc(3)\n"
        "exporter.read = lambda: iter([Reading(metrics.PENDING_EVENTS, 7, {'stream': 's'})])\n"
        "from django.test import RequestFactory\n"
        "print(exporter.metrics(RequestFactory().get('/metrics')).content.decode())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={**__import__("os").environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
    )  # fmt: skip
    assert 'spillway_buffer_pending_events{stream="s"} 7.0' in done.stdout
    assert "spillway_fence_lost_total 3.0" in done.stdout
    assert len(re.findall("# TYPE spillway_buffer_pending_events ", done.stdout)) == 1


def test_a_correlation_id_comes_back(client):
    assert client.get("/healthz", headers={"X-Correlation-ID": "trace-0001"})["X-Correlation-ID"] == "trace-0001"
    made_up = client.get("/healthz", headers={"X-Correlation-ID": "no spaces, please"})["X-Correlation-ID"]
    assert re.fullmatch("[0-9a-f-]{36}", made_up)


def test_no_line_has_the_id_of_the_request_before_in_its_thread(client, settings):
    """One that is refused for its host, and what the server says when it cannot read the next one."""
    settings.SECURE_SSL_REDIRECT = True
    handler = logging.StreamHandler(StringIO())
    handler.setFormatter(line_formatter("json"))
    logging.getLogger().addHandler(handler)
    try:
        client.get("/healthz", headers={"X-Correlation-ID": "the-first"})
        refused = client.get("/admin/", headers={"X-Correlation-ID": "the-second", "Host": "elsewhere.example"})
        logging.getLogger("gunicorn.error").warning("Invalid HTTP request line")
    finally:
        logging.getLogger().removeHandler(handler)
    assert (refused.status_code, refused["X-Correlation-ID"]) == (400, "the-second")
    said = [json.loads(line) for line in handler.stream.getvalue().splitlines()]
    told = {line["logger"]: line.get("correlation_id") for line in said}
    assert (told["django.security.DisallowedHost"], told["gunicorn.error"]) == ("the-second", None)


@pytest.mark.parametrize(
    ("path", "logged"),
    [
        ("/admin/throttler/customer/anna_40example.com/change/", "/admin/throttler/customer/<path:object_id>/change/"),
        ("/nowhere/anna@example.com/", "/nowhere/<address>/"),
        ("/admin/find/?q=anna@example.com", "/admin/find/"),
    ],
)
def test_the_log_has_the_route_where_a_path_names_an_object(boss, caplog, path, logged):  # noqa: F811
    with caplog.at_level("INFO"):
        boss.get(path)
    assert [line["path"] for line in lines(caplog) if line["event"] == "request"] == [logged]
    assert "example.com" not in str(lines(caplog))


def test_a_page_without_a_database_is_told_by_its_route(rf, caplog):
    request = rf.get("/admin/throttler/customer/anna_40example.com/change/")
    request.resolver_match = resolve(request.path)
    sessions = Sessions(lambda _: None)
    assert sessions.process_exception(request, ProgrammingError("syntax error")) is None
    answer = sessions.process_exception(request, OperationalError("server closed the connection"))
    assert answer.status_code == 503
    (line,) = lines(caplog)
    assert (line["event"], line["path"]) == ("page_unavailable", "/admin/throttler/customer/<path:object_id>/change/")
