"""Tracing, when OTEL_EXPORTER_OTLP_ENDPOINT says where to: spans, and the traceparents that carry them further."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from django.conf import settings
from django.db.models import Q
from django.http import HttpRequest
from django.urls import Resolver404, resolve

from config.environment.env import BadSetting
from config.telemetry.redaction import without_query

if TYPE_CHECKING:
    from config.telemetry.spans import Ids, Spans

IDS = r"(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})"
TRACEPARENT = re.compile(rf"00-{IDS}")
ANY_VERSION = re.compile(rf"(?!ff|00.{{54}})[0-9a-f]{{2}}-({IDS})(?:-.*)?")  # only a later one may say more
TRACE_ID = re.compile(r"[0-9a-f]{32}")
SAMPLED = 1  # the flag of a traceparent whose span somebody keeps
PROBES = r"^https?://[^/]+/(healthz|livez|readyz|metrics)\b"
OFF: AbstractContextManager[None] = nullcontext()

_spans: Spans | None = None  # None: nothing is traced, and nothing of OpenTelemetry is imported


# -- Starting ------------------------------------------------------------------------------------------------
def start_tracing() -> bool:
    """Instrument Django and Celery and export over OTLP/HTTP; False when no variable says where to, or one says not to.

    Raises BadSetting when the extra `otel` is not installed.
    """
    global _spans
    base = settings.OTEL_EXPORTER_OTLP_ENDPOINT.rstrip("/")
    endpoint = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or (base and f"{base}/v1/traces")
    switches = {name: os.environ.get(name, "").lower() for name in ("OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER")}
    if not endpoint or switches["OTEL_SDK_DISABLED"] == "true" or switches["OTEL_TRACES_EXPORTER"] == "none":
        return False
    try:
        from config.telemetry.spans import Spans
    except ImportError as error:
        raise BadSetting(f"OTEL_EXPORTER_OTLP_ENDPOINT: {error.name} is missing; install the extra `otel`") from error
    _spans = Spans(endpoint, service_name(sys.argv))
    excluded = [PROBES, os.environ.get("OTEL_PYTHON_DJANGO_EXCLUDED_URLS", "")]
    _spans.instrument(hide_query, ",".join(filter(None, excluded)))
    return True


def service_name(arguments: list[str]) -> str:
    """`spillway-` and what this process is: web, beat, celery_worker, or the command of manage.py."""
    program, *rest = arguments or [""]
    path = Path(program)
    name = path.parent.name if path.name == "__main__.py" else path.name
    words = [word for word in rest if not word.startswith("-")]
    if name in ("manage.py", "spillway", "command_line.py", "django-admin", "django"):
        return f"spillway-{'web' if words[:1] == ['runserver'] else (words or ['manage'])[0]}"
    if name == "celery":
        return f"spillway-{'beat' if 'beat' in words else 'celery_worker'}"
    return "spillway-web"


def hide_query(span: Any, request: HttpRequest) -> None:
    """Take the query string out of a request's span, and the secret of a link that sets a password."""
    if span.is_recording():
        try:
            # Also without its last slash, to which Django redirects. No middleware has found the route yet.
            match = resolve(f"{request.path_info.rstrip('/')}/")
            secret = "token" in match.kwargs
        except Resolver404:
            secret = False
        span.set_attributes(without_query(dict(span.attributes), f"/{match.route}" if secret else ""))


# -- Spans ---------------------------------------------------------------------------------------------------
def span(
    name: str,
    parent: str | None = None,
    *,
    links: Iterable[str] = (),
    kind: Literal["internal", "client", "producer", "consumer"] = "internal",
    known_as: str = "",
    began: int | None = None,
    **attributes: str | int,
) -> AbstractContextManager[None]:
    """A span around a block, in this thread; costs nothing when nothing is traced.

    `parent` is a traceparent, of another process as a rule: an empty or broken one begins a trace, and None continues the
    span under way. `links` are traceparents, too; the first 128 that are sound, and kept by a sampler, count. What the block raises ends the span
    as an error, with the class alone: its text may be somebody's data. `known_as` is the traceparent of the span itself,
    where a message has carried it away before; `began` a Unix time in nanoseconds, where the work has begun before.
    """
    if _spans is None:
        return OFF
    above: Ids | Literal[False] | None = False if parent is None else _ids(parent)
    own = _ids(known_as) if known_as else None
    linked = (ids for ids in map(_ids, links) if ids and ids[2] & SAMPLED)
    return _spans.around(name, above, linked, kind, attributes, own, began)


def annotate(**attributes: str | int) -> None:
    """Say more about the span under way."""
    if _spans is not None:
        _spans.annotate(attributes)


def fail(reason: str) -> None:
    """The span under way is an error; `reason` holds nobody's data."""
    if _spans is not None:
        _spans.fail(reason)


def end() -> None:
    """Export what waits, for at most 3 s: for a process that ends without its exit handlers."""
    if _spans is not None:
        _spans.end()


# -- Traceparents --------------------------------------------------------------------------------------------
def traceparent() -> str:
    """The W3C `traceparent` of the span under way; empty when nothing is traced."""
    return "" if _spans is None else _spans.traceparent()


def trace_id_of(text: str) -> str:
    """The trace id of a traceparent of version 00, 32 hexadecimal digits; empty when it is none."""
    match = TRACEPARENT.fullmatch(text)
    return match[1] if match else ""


def trace_id_in(text: str) -> str:
    """The trace id that a person looks for by itself or by a whole traceparent of any version; empty where it is neither."""
    word = text.strip().lower()
    match = ANY_VERSION.fullmatch(word)
    return match[2] if match else word if TRACE_ID.fullmatch(word) else ""


def in_trace(text: str) -> Q:
    """Rows whose `traceparent` belongs to the trace in `text`, found by an index over it; none, where there is none."""
    trace_id = trace_id_in(text)
    if not trace_id:
        return Q(pk__in=[])
    begin = f"00-{trace_id}-"
    # Behind the last hexadecimal digit in every collation; signs stand before digits in some.
    return Q(traceparent__gt=begin, traceparent__lt=f"{begin}g")


def traceparent_in(headers: Iterable[tuple[str, bytes | None]] | None) -> str:
    """The traceparent among a record's headers, as one of version 00; empty without a sound one, or with several."""
    values = [value or b"" for name, value in headers or () if name == "traceparent"]
    text = values[0].decode("ascii", "replace") if len(values) == 1 else ""
    match = ANY_VERSION.fullmatch(text)
    return f"00-{match[1]}" if match else ""


def _ids(text: str) -> Ids | None:
    match = TRACEPARENT.fullmatch(text)
    return (int(match[1], 16), int(match[2], 16), int(match[3], 16)) if match else None
