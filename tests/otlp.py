"""A receiver of traces: OTLP over HTTP, decoded; and the fixture that has this process export to it."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from django.test import override_settings

from config.telemetry import tracing


class Span(NamedTuple):
    """A span as it arrived; ids are hexadecimal, `links` are pairs of trace and span."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    links: list[tuple[str, str]]
    about: dict[str, str]
    failed: str  # the status of an error
    began: int  # Unix time, nanoseconds
    events: list[tuple[str, dict[str, str]]]

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace}-{self.id}-01"


class Receiver:
    """`with Receiver() as receiver` listens on `url`; `spans()` flushes this process, then says what has arrived."""

    def __init__(self) -> None:
        self._spans: list[Span] = []
        spans = self._spans

        class Traces(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                spans.extend(decoded(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Traces)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Receiver:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def spans(self) -> list[Span]:
        if tracing._spans:
            tracing._spans.provider.force_flush()
        return list(self._spans)

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans() if span.name == name]

    def one(self, name: str) -> Span:
        [span] = self.named(name)
        return span


def decoded(body: bytes) -> Iterator[Span]:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = _values(resource.resource.attributes)["service.name"]
        for scope in resource.scope_spans:
            for span in scope.spans:
                links = [(link.trace_id.hex(), link.span_id.hex()) for link in span.links]
                ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
                failed = span.status.message or "error" if span.status.code == 2 else ""
                events = [(event.name, _values(event.attributes)) for event in span.events]
                about, began = _values(span.attributes), span.start_time_unix_nano
                yield Span(service, span.name, *ids, links, about, failed, began, events)


def _values(pairs: Any) -> dict[str, str]:
    return {pair.key: str(getattr(pair.value, pair.value.WhichOneof("value"))) for pair in pairs}


@contextmanager
def exported() -> Iterator[Receiver]:
    """This process exports to a receiver, as one with OTEL_EXPORTER_OTLP_ENDPOINT does."""
    from opentelemetry.instrumentation.celery import CeleryInstrumentor
    from opentelemetry.instrumentation.django import DjangoInstrumentor

    with Receiver() as receiver, override_settings(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url):
        assert tracing.start_tracing()
        try:
            yield receiver
        finally:
            spans, tracing._spans = tracing._spans, None
            assert spans
            atexit.unregister(spans.end)
            spans.end()
            DjangoInstrumentor().uninstrument()
            CeleryInstrumentor().uninstrument()
