"""OpenTelemetry, when OTEL_EXPORTER_OTLP_ENDPOINT says where to; the libraries are the extra `otel`."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from config.environment.env import BadSetting
from config.telemetry.redaction import without_query


def start_tracing() -> bool:
    """Instrument Django and Celery and export over OTLP/HTTP; False when no endpoint is set.

    Kafka messages carry `traceparent` headers of their own, so that a trace crosses the buffer.
    """
    endpoint = settings.OTEL_EXPORTER_OTLP_ENDPOINT
    if not endpoint:
        return False
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation.celery import CeleryInstrumentor
        from opentelemetry.instrumentation.django import DjangoInstrumentor
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise BadSetting(f"OTEL_EXPORTER_OTLP_ENDPOINT: {error.name} is missing; install the extra `otel`") from error
    provider = TracerProvider(resource=Resource.create({"service.name": "spillway"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces")))
    trace.set_tracer_provider(provider)
    DjangoInstrumentor().instrument(request_hook=hide_query)
    CeleryInstrumentor().instrument()
    return True


def hide_query(span: Any, request: object) -> None:
    """Take the query string out of a request's span."""
    if span.is_recording():
        span.set_attributes(without_query(dict(span.attributes)))


def traceparent() -> str:
    """The W3C `traceparent` of the span under way; empty when nothing is traced."""
    if not settings.OTEL_EXPORTER_OTLP_ENDPOINT:
        return ""
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
