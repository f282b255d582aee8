"""Tracing: off without an endpoint, one clear line when its libraries are missing."""

import importlib.util
import os
import socket
import subprocess
import sys
import time

import pytest

from config.environment.env import BadSetting
from config.telemetry.redaction import without_query
from config.telemetry.tracing import service_name, start_tracing, trace_id_in, trace_id_of, traceparent_in
from tests.otlp import Receiver


@pytest.mark.parametrize(("switch", "off"), [("OTEL_SDK_DISABLED", "True"), ("OTEL_TRACES_EXPORTER", "none")])
def test_the_libraries_own_switches_turn_it_off(settings, monkeypatch, switch, off):
    settings.OTEL_EXPORTER_OTLP_ENDPOINT = "http://127.0.0.1:4318"
    monkeypatch.setenv(switch, off)
    assert start_tracing() is False


@pytest.mark.parametrize(
    ("given", "service"),
    [
        ({}, "spillway-web"), ({"OTEL_SERVICE_NAME": "mine"}, "mine"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=mine,team=a"}, "mine"),
    ],
)  # fmt: skip
def test_an_address_of_traces_alone_is_enough_and_an_operators_name_stays(given, service):
    pytest.importorskip("opentelemetry", reason="the extra `otel` is not installed: no trace is tested")
    with Receiver() as receiver:
        given = given | {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{receiver.url}/v1/traces"}
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", "DEBUG": "1", **given}
        for general in ("", "http://127.0.0.1:1"):
            environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = general
            subprocess.run([sys.executable, "-c", SPANS], env=environment, timeout=60, check=True)
        assert [span.service for span in receiver.spans()] == [service, service]


@pytest.mark.skipif(importlib.util.find_spec("opentelemetry") is not None, reason="the extra `otel` is installed")
def test_a_missing_library_names_the_extra(settings):
    settings.OTEL_EXPORTER_OTLP_ENDPOINT = "http://127.0.0.1:4318"
    with pytest.raises(BadSetting, match="OTEL_EXPORTER_OTLP_ENDPOINT.*`otel`"):
        start_tracing()


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("manage.py relay_outbox --channel email", "relay_outbox"),
        ("/srv/manage.py runserver 8000", "web"),
        ("/site-packages/gunicorn/__main__.py config.wsgi --bind x", "web"),
        ("/usr/bin/gunicorn config.wsgi", "web"),
        ("/site-packages/celery/__main__.py -A config beat", "beat"),
        ("/usr/bin/celery -A config worker -B", "celery_worker"),
        ("/site-packages/django/__main__.py ingest_buffer", "ingest_buffer"),
    ],
)
def test_a_service_is_named_after_its_process(command, name):
    assert service_name(command.split()) == f"spillway-{name}"


def test_a_route_takes_the_place_of_a_path_under_each_name_that_a_path_has():
    path = "/welcome/MQ/5ecret/"
    span = {"http.target": path, "http.url": f"http://x{path}?q=1", "url.full": f"https://x{path}", "url.path": path}
    route = r"/welcome/(?P<token>[\w]+)/"
    assert without_query({**span, "url.query": "q=1", "http.method": "GET"}, route) == {
        "http.target": route,
        "http.url": f"http://x{route}",
        "url.full": f"https://x{route}",
        "url.path": route,
        "url.query": "",
    }
    assert without_query(span) == {**span, "http.url": f"http://x{path}"}


@pytest.mark.parametrize(
    "name", ["ada@example.com", "%22ada%20b%22@example.com", "ada%40example.com", "ada_40example.com"]
)
def test_an_address_in_a_path_is_in_no_span(name):
    at, said = f"/admin/throttler/customer/{name}/change/", "/admin/throttler/customer/<address>/change/"
    cut = without_query({"http.target": at, "http.url": f"http://x:80{at}?q={name}", "url.path": f"/nowhere/{name}"})
    assert cut == {"http.target": said, "http.url": f"http://x:80{said}", "url.path": "/nowhere/<address>"}


def test_only_a_sound_traceparent_has_a_trace():
    trace, span = "ab" * 16, "cd" * 8
    assert trace_id_of(f"00-{trace}-{span}-01") == trace
    for broken in (
        "",
        f"00-{trace}-{span}",
        f"00-{'0' * 32}-{span}-01",
        f"00-{trace}-{'0' * 16}-01",
        f"00-{trace.upper()}-{span}-01",
    ):
        assert trace_id_of(broken) == ""


def test_a_record_has_one_traceparent_of_any_version():
    ids = f"{'ab' * 16}-{'cd' * 8}-01"

    def read(*texts):
        return traceparent_in([("other", b"x"), *(("traceparent", text and text.encode()) for text in texts)])

    assert {read(f"00-{ids}"), read(f"cc-{ids}"), read(f"01-{ids}-what-will-be")} == {f"00-{ids}"}
    for broken in (f"ff-{ids}", f"00-{ids}-x", f"00-{ids}-", f"01-{ids}x", f"0-{ids}", f"01-{ids}-\n", "", None):
        assert read(broken) == ""
    assert read() == read(f"00-{ids}", f"00-{ids}") == traceparent_in(None) == ""


def test_a_trace_is_looked_for_by_its_id_or_by_a_traceparent_of_any_version():
    ids = f"{'ab' * 16}-{'cd' * 8}-01"
    for text in ("ab" * 16, f" {'AB' * 16} ", f"00-{ids}", f"00-{ids}".upper(), f"01-{ids}", f"cc-{ids}-What-Will-Be"):
        assert trace_id_in(text) == "ab" * 16
    for text in ("", "ab", f"ff-{ids}", f"00-{ids}-x", f"01-{'0' * 32}-{'cd' * 8}-01"):
        assert trace_id_in(text) == ""


SPANS = """
import os, time, django
django.setup()
from config.telemetry import tracing
for number in range(int(os.environ.get("SPANS", "1"))):
    with tracing.span("one", ""):
        pass
print(time.monotonic())  # the same clock for all processes
"""


@pytest.mark.processes
@pytest.mark.parametrize("listens", [True, False], ids=["hangs", "is down"])
def test_a_process_ends_without_its_collector_and_with_a_line_at_most(listens):
    pytest.importorskip("opentelemetry", reason="the extra `otel` is not installed: no trace is tested")
    with socket.create_server(("127.0.0.1", 0)) as collector:  # accepts, and never answers
        url = f"http://127.0.0.1:{collector.getsockname()[1]}"
        if not listens:
            collector.close()
        given = {"DJANGO_SETTINGS_MODULE": "config.settings", "DEBUG": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": url}
        given["SPANS"] = "2000"  # several exports, which would each wait for its timeout
        command = [sys.executable, "-c", SPANS]
        ended = subprocess.run(command, env={**os.environ, **given}, timeout=90, capture_output=True, text=True)
        waited = time.monotonic() - float(ended.stdout)
    assert ended.returncode == 0
    assert waited < 25, "the SDK waits 30 s and more, which is asleep on a busy machine, too"
    assert len(ended.stderr.splitlines()) <= 1, ended.stderr
