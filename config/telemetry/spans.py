"""Spans of OpenTelemetry: the only file that imports it, and imported only where traces are exported."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Literal

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.instrumentation.django import DjangoInstrumentor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags

MOST_LINKS = 128  # what a span keeps
Ids = tuple[int, int, int]  # of a trace, of a span in it, and its flags


class KnownIds(threading.local, RandomIdGenerator):
    """Random ids but for a span that this thread gives its own: `known` while it starts."""

    known: Ids | None = None

    def generate_trace_id(self) -> int:
        return self.known[0] if self.known else super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self.known[1] if self.known else super().generate_span_id()


class Spans:
    """What makes spans in this process, and sends them to `endpoint` (OTLP over HTTP) as `service`."""

    def __init__(self, endpoint: str, service: str) -> None:
        self.ids = KnownIds()
        resource = Resource.create({"service.name": service})
        self.provider = TracerProvider(resource=resource, id_generator=self.ids)
        self.provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
        trace.set_tracer_provider(self.provider)
        self.tracer = self.provider.get_tracer("spillway")
        self.flush = self.provider.force_flush

    def instrument(self, request_hook: Callable[..., None], excluded_urls: str) -> None:
        """A span for each request of the web server and each task of Celery."""
        DjangoInstrumentor().instrument(
            request_hook=request_hook, excluded_urls=excluded_urls, tracer_provider=self.provider
        )
        CeleryInstrumentor().instrument(tracer_provider=self.provider)

    @contextmanager
    def around(
        self,
        name: str,
        parent: Ids | Literal[False] | None,
        links: Iterable[Ids],
        kind: str,
        attributes: Mapping[str, str | int],
        known_as: Ids | None,
        began: int,
    ) -> Iterator[None]:
        """See `config.telemetry.tracing.span`; `parent` None begins a trace, and False continues the span under way."""
        context = None if parent is False else _context_below(parent)
        linked = [Link(remote(ids)) for ids in islice(links, MOST_LINKS)]
        self.ids.known = known_as
        span = self.tracer.start_span(name, context, SpanKind[kind.upper()], attributes, linked, began or None)
        self.ids.known = None
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield
            except BaseException as error:
                self.fail(type(error).__name__)
                raise

    @staticmethod
    def note(attributes: Mapping[str, str | int]) -> None:
        trace.get_current_span().set_attributes(attributes)

    @staticmethod
    def fail(reason: str) -> None:
        trace.get_current_span().set_status(StatusCode.ERROR, reason)

    @staticmethod
    def traceparent() -> str:
        """That of the span under way; empty without one."""
        context = trace.get_current_span().get_span_context()
        if not context.is_valid:
            return ""
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _context_below(parent: Ids | None) -> Context:
    return trace.set_span_in_context(NonRecordingSpan(remote(parent)), Context()) if parent else Context()


def remote(ids: Ids) -> SpanContext:
    """A span of another process."""
    trace_id, span_id, flags = ids
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
