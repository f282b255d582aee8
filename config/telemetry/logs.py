"""Structured logs: one JSON object a line, or colours on a console; each with a correlation id."""

from __future__ import annotations

import json
import logging.config
from collections.abc import Callable, Collection, Iterator, Sized
from functools import cached_property, partial
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any, Literal, cast

import msgspec
import structlog
from django.conf import settings
from django.db import transaction
from structlog.typing import EventDict, Processor

from config.telemetry.redaction import masked_error, of_others, redact, trace_of, visible
from config.telemetry.tracing import trace_id_of, traceparent

NAME = "spillway"
MOST_IDS = 100  # of each kind in a line
TRACE = slice(3, 35)  # of a traceparent
REFUSED = "django.security"  # what strangers sent: a Host, an Origin, a cookie; a traceback of it says nothing of ours
NO_BLANKS = ",", ":"  # between the fields, as msgspec writes them: somebody looks for `"event":"messages_sent"`

log: structlog.stdlib.BoundLogger = structlog.get_logger(NAME)


def configure(options: dict[str, str]) -> None:
    """Django's LOGGING_CONFIG hook; `options` holds level and format."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level, *COMPLETED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )  # fmt: skip
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"line": {"()": line_formatter, "style": options["format"]}},
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
            "root": {"handlers": ["stderr"], "level": options["level"]},
            "loggers": {
                # The client logs each reconnect attempt; our own consumer says once that the broker is away.
                "kafka": {"level": "CRITICAL"},
                # The same, with a traceback each time; whoever asks the store says what it answered.
                "cassandra": {"level": "CRITICAL"},
                # Each attempt of an export, and each span that a full queue drops; that a batch is lost is an error.
                "opentelemetry": {"level": "ERROR"},
                "django.request": {"level": "ERROR"},
                # Those that write by themselves otherwise, whatever somebody sent.
                "django": {},
                "django.server": {"level": "ERROR", "propagate": True},
                "gunicorn.error": {"propagate": True},
                "django.utils.autoreload": {"level": "WARNING"},
            },
        }
    )


def keep_level() -> None:
    """Of our own lines: LOG_LEVEL, whatever somebody sets for all loggers later."""
    logging.getLogger(NAME).setLevel(settings.LOGGING["level"])


def bind(**fields: object) -> None:
    """Add fields (api_token …) to every further line of the request under way."""
    structlog.contextvars.bind_contextvars(**fields)


def begin(**fields: object) -> None:
    """A request has begun: its lines have these fields, and none of the one before."""
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**fields)


def correlation_id() -> str:
    """That of the request under way; empty outside of one."""
    return str(structlog.contextvars.get_contextvars().get("correlation_id", ""))


def log_committed(
    event: str, level: Literal["info", "warning", "error"] = "info", /, ids: RowIds | None = None, **fields: object
) -> None:
    """Log when the transaction under way is committed, or now where there is none; never what is rolled back or rerun."""
    if log.isEnabledFor(getattr(logging, level.upper())):
        if ids:
            fields |= ids.fields  # now: until the commit a row may change
        transaction.on_commit(partial(getattr(log, level), event, **fields), robust=True)


Place = str | int | Callable[[Any], object]  # of an id in a row


class RowIds:
    """The ids of many rows: `RowIds(messages, message_id="id")` adds `"message_id":["0198…", …],"more":0` to a line.

    A place is an attribute, an index, a function of the row, or None for the row itself. A list has at most 100 ids, in the order of the rows, and
    `more` says how many rows follow; lists without any value are left out. A `trace_id` is read from a traceparent.
    `RowIds(…) | RowIds(…)` has the lists of both, and the second one's `more`.

    They are read when a line that somebody wants has them, and once for all lines that do.
    With their `number` the rows may be an iterator: at most 100 are then made of however many there are.
    """

    def __init__(
        self, rows: Collection[Any] | Iterator[Any], number: int | None = None, /, **places: Place | None
    ) -> None:
        self._rows, self._places = rows, places
        self._number = len(cast(Sized, rows)) if number is None else number
        self._beside: tuple[RowIds, ...] = ()

    def __or__(self, other: RowIds) -> RowIds:
        both = RowIds(self._rows, self._number, **self._places)
        both._beside = (*self._beside, other)
        return both

    @cached_property
    def fields(self) -> dict[str, object]:
        """Each list, as texts, "" where one is missing."""
        rows = list(islice(self._rows, MOST_IDS))
        fields: dict[str, object] = {}
        for name, place in self._places.items():
            if not (place is None or callable(place)):
                place = attrgetter(place) if isinstance(place, str) else itemgetter(place)
            ids = rows if place is None else list(map(place, rows))
            if any(ids):
                texts = ["" if value is None else str(value) for value in ids]
                fields[name] = [text[TRACE] for text in texts] if name == "trace_id" else texts
        fields["more"] = max(self._number - MOST_IDS, 0)
        for other in self._beside:
            fields |= other.fields
        return fields


# -- Structlog's processors: what each line has, and how it is written -----------------------------------------
def add_ids(_logger: object, _method: str, event: EventDict) -> EventDict:
    if ids := event.pop("ids", None):
        event.update(ids.fields)
    return event


def add_trace_id(_logger: object, _method: str, event: EventDict) -> EventDict:
    if context := traceparent():
        event.setdefault("trace_id", trace_id_of(context))
    return event


def redacted(_logger: object, _method: str, event: EventDict) -> EventDict:
    return redact(event)


def told_by_others(_logger: object, _method: str, event: EventDict) -> EventDict:
    """A record that others wrote; of a refused request without what a stranger chose."""
    refused = event["_record"].name.startswith(REFUSED)
    event["event"] = (masked_error if refused else of_others)(event["event"])
    error = event.pop("exc_info", None)
    if error and not refused:
        event["exception"] = trace_of(error[1], of_others)
    event.pop("stack_info", None)
    return event


COMPLETED: list[Processor] = [
    add_ids,
    structlog.contextvars.merge_contextvars,
    add_trace_id,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    redacted,
    structlog.processors.ExceptionRenderer(lambda found: trace_of(found[1])),
]


def line_formatter(style: str) -> logging.Formatter:
    """Writes a line as JSON, or with the style `console` for people; records of others become lines of ours first."""
    formatter = structlog.stdlib.ProcessorFormatter
    written: list[Processor] = [structlog.processors.JSONRenderer(as_json)]
    if style == "console":
        written = [structlog.dev.ConsoleRenderer(colors=False), lambda _logger, _method, line: visible(str(line))]
    return formatter(
        processors=[formatter.remove_processors_meta, *written], foreign_pre_chain=[told_by_others, *COMPLETED]
    )


def as_json(line: object, **_: object) -> str:
    """Of a line. Msgspec knows ids, times and keys that are no text; the standard library escapes what is not ASCII."""
    try:
        text = msgspec.json.encode(line, enc_hook=repr)
        return text.decode() if text.isascii() else json.dumps(json.loads(text), separators=NO_BLANKS)
    except (TypeError, ValueError):  # a lone surrogate
        return json.dumps(line, default=str, separators=NO_BLANKS)
