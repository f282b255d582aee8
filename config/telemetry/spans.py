"""Spans of OpenTelemetry: the only file that imports it, and imported only where traces are exported."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Literal

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.instrumentation.django import DjangoInstrumentor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, IdGenerator, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

MOST_LINKS = 128  # what a span keeps
MOST_MILLISECONDS_AT_EXIT = 3000  # of the 8 s that a process has to end
KIND = "exception.type"
Ids = tuple[int, int, int]  # of a trace, of a span in it, and its flags


class KnownIds(IdGenerator):
    """Of a span that a traceparent has named before it was made; each thread has its own."""

    def __init__(self) -> None:
        self._known = threading.local()

    def are(self, ids: Ids) -> None:
        self._known.ids = ids

    def generate_trace_id(self) -> int:
        return int(self._known.ids[0])

    def generate_span_id(self) -> int:
        return int(self._known.ids[1])


class ErrorsByKind(BatchSpanProcessor):
    """Of an exception that an instrumentor has recorded its class leaves: its text and its traceback may be somebody's data."""

    def on_end(self, span: ReadableSpan) -> None:
        events = [_by_kind(event) for event in span.events]
        kinds = [str((event.attributes or {})[KIND]) for event in events if event.name == "exception"]
        if kinds:
            said = kinds[-1].rpartition(".")[2] if span.status.description else None
            span = ReadableSpan(
                span.name, span.context, span.parent, span.resource, span.attributes, events, span.links, span.kind,
                status=Status(span.status.status_code, said), start_time=span.start_time, end_time=span.end_time,
                instrumentation_scope=span.instrumentation_scope,
            )  # fmt: skip
        super().on_end(span)


def _by_kind(event: Event) -> Event:
    if event.name != "exception":
        return event
    return Event(event.name, {KIND: (event.attributes or {}).get(KIND, "")}, event.timestamp)


class Spans:
    """What makes spans in this process, and sends them to `endpoint` (OTLP over HTTP) as `service`, or as an operator named it."""

    def __init__(self, endpoint: str, service: str) -> None:
        known = Resource.create({})
        if str(known.attributes["service.name"]).startswith("unknown_service"):  # no operator has named it
            known = known.merge(Resource({"service.name": service}))
        self.processor = ErrorsByKind(OTLPSpanExporter(endpoint))
        self.provider = TracerProvider(resource=known, shutdown_on_exit=False)
        self.provider.add_span_processor(self.processor)
        trace.set_tracer_provider(self.provider)
        # A traceparent that has been carried away says that others keep what stands below it: so is the span that it names.
        self.known_ids = KnownIds()
        carried = TracerProvider(ALWAYS_ON, known, shutdown_on_exit=False, id_generator=self.known_ids)
        carried.add_span_processor(self.processor)
        self.tracer, self.carried_tracer = self.provider.get_tracer("spillway"), carried.get_tracer("spillway")
        atexit.register(self.end)

    def end(self) -> None:
        """Export what waits, for at most 3 s, and nothing more.

        The processor's public `shutdown` waits 30 s for a collector that hangs, and `force_flush` for each batch anew. From
        Python 3.12 on, a thread that could be left behind cannot be started at exit; theirs runs already.
        """
        self.processor._batch_processor.shutdown(timeout_millis=MOST_MILLISECONDS_AT_EXIT)

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
        began: int | None,
    ) -> Iterator[None]:
        """See `config.telemetry.tracing.span`; `parent` None begins a trace, and False continues the span under way."""
        tracer = self.tracer
        if known_as:
            tracer = self.carried_tracer
            self.known_ids.are(known_as)
        span = tracer.start_span(
            name, None if parent is False else _context_below(parent), SpanKind[kind.upper()], attributes,
            [Link(remote(ids)) for ids in islice(links, MOST_LINKS)], began,
        )  # fmt: skip
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield
            except BaseException as error:
                span.set_status(StatusCode.ERROR, type(error).__name__)
                raise

    @staticmethod
    def annotate(attributes: Mapping[str, str | int]) -> None:
        trace.get_current_span().set_attributes(attributes)

    @staticmethod
    def fail(reason: str) -> None:
        trace.get_current_span().set_status(StatusCode.ERROR, reason)

    @staticmethod
    def traceparent() -> str:
        """That of the span under way; empty without one."""
        ids = trace.get_current_span().get_span_context()
        if not ids.is_valid:
            return ""
        return f"00-{ids.trace_id:032x}-{ids.span_id:016x}-{int(ids.trace_flags):02x}"


def _context_below(parent: Ids | None) -> context.Context:
    empty = context.Context()
    return trace.set_span_in_context(NonRecordingSpan(remote(parent)), empty) if parent else empty


def remote(ids: Ids) -> SpanContext:
    """A span of another process."""
    trace_id, span_id, flags = ids
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
