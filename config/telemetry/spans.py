"""Spans of OpenTelemetry: the only file that imports it, and imported only where traces are exported."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Literal

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.instrumentation.django import DjangoInstrumentor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

MOST_LINKS = 128  # what a span keeps
MOST_MILLISECONDS_AT_EXIT = 3000  # of the 8 s that a process has to end
KIND = "exception.type"
Ids = tuple[int, int, int]  # of a trace, of a span in it, and its flags


class OneResource(Resource):
    """Whose spans all are: the encoder asks for its hash with each span, and the SDK's writes JSON to answer."""

    def __hash__(self) -> int:
        return id(self)


class OpenSpan(NonRecordingSpan):
    """What a span of ours will say once it has ended.

    The SDK's own has a lock, limits and events, of which a span of a worker needs none, and takes more than twice as long.
    """

    def __init__(self, ids: SpanContext, attributes: Mapping[str, str | int]) -> None:
        super().__init__(ids)
        self.attributes = dict(attributes)
        self.status = Status()

    def set_attributes(self, attributes: Mapping[str, str | int]) -> None:  # type: ignore[override]
        self.attributes.update(attributes)

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        self.status = status if isinstance(status, Status) else Status(status, description)


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
        self.resource = OneResource(known.attributes, known.schema_url)
        self.scope = InstrumentationScope("spillway")
        self.provider = TracerProvider(resource=self.resource, shutdown_on_exit=False)
        self.processor = ErrorsByKind(OTLPSpanExporter(endpoint))
        self.provider.add_span_processor(self.processor)
        trace.set_tracer_provider(self.provider)
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
        began: int,
    ) -> Iterator[None]:
        """See `config.telemetry.tracing.span`; `parent` None begins a trace, and False continues the span under way."""
        below = None if parent is False else _context_below(parent)
        above = trace.get_current_span(below).get_span_context()
        made = self.provider.id_generator
        trace_id = above.trace_id if above.is_valid else known_as[0] if known_as else made.generate_trace_id()
        span_id = known_as[1] if known_as else made.generate_span_id()
        linked, of_kind = [Link(remote(ids)) for ids in islice(links, MOST_LINKS)], SpanKind[kind.upper()]
        verdict = self.provider.sampler.should_sample(below, trace_id, name, of_kind, attributes, linked)
        # A traceparent that has been carried away says whether others keep what stands below it.
        sampled = bool(known_as[2] & TraceFlags.SAMPLED) if known_as else verdict.decision.is_sampled()
        flags = TraceFlags(above.trace_flags & ~TraceFlags.SAMPLED | sampled)
        span = OpenSpan(
            SpanContext(trace_id, span_id, is_remote=False, trace_flags=flags, trace_state=verdict.trace_state),
            dict(attributes) | dict(verdict.attributes or {}),  # one that drops a span says none
        )
        began = began or time.time_ns()
        token = context.attach(trace.set_span_in_context(span, below))
        try:
            yield
        except BaseException as error:
            span.set_status(StatusCode.ERROR, type(error).__name__)
            raise
        finally:
            context.detach(token)
            if sampled:
                self.processor.on_end(
                    ReadableSpan(
                        name, span.get_span_context(), above if above.is_valid else None, self.resource,
                        span.attributes, links=linked, kind=of_kind, status=span.status, start_time=began,
                        end_time=time.time_ns(), instrumentation_scope=self.scope,
                    )
                )  # fmt: skip

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
