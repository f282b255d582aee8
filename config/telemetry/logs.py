"""Structured logs: one JSON object a line, or colours on a console; each with a correlation id."""

from __future__ import annotations

import json
import logging.config
from collections.abc import Callable, Collection, MutableMapping
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any, Literal
from uuid import UUID

import msgspec
import structlog
from django.db import transaction
from structlog.typing import Processor

from config.telemetry.redaction import redact, trace_of, visible
from config.telemetry.tracing import add_trace_id

NAME = "spillway"
MOST_IDS = 100  # of each kind in a line
TRACE = slice(3, 35)  # of a traceparent
PLAIN = frozenset({str, UUID})

log: structlog.stdlib.BoundLogger = structlog.get_logger(NAME)


SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    add_trace_id,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    redact,
    structlog.processors.ExceptionRenderer(lambda found: trace_of(found[1])),
]


def configure(options: dict[str, str]) -> None:
    """Django's LOGGING_CONFIG hook; `options` holds level and format."""
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    # Nobody is told which line of the program logs: to look for it takes longer than to write a short line.
    logging._srcfile = None
    formatter = {"()": LineFormatter, "render": on_console if options["format"] == "console" else as_json}
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"line": formatter},
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
            "root": {"handlers": ["stderr"], "level": options["level"]},
            "loggers": {
                # The client logs each reconnect attempt; our own consumer says once that the broker is away.
                "kafka": {"level": "CRITICAL"},
                # The same, with a traceback each time; whoever asks the store says what it answered.
                "cassandra": {"level": "CRITICAL"},
                "django.request": {"level": "ERROR"},
                "django.utils.autoreload": {"level": "WARNING"},
            },
        }
    )


def bind(**context: object) -> None:
    """Add fields (correlation_id, batch_id, …) to every further line of this thread."""
    structlog.contextvars.bind_contextvars(**context)


def log_committed(event: str, level: Literal["info", "warning", "error"] = "info", /, **fields: object) -> None:
    """Log when the transaction under way is committed, or now where there is none; never what is rolled back or rerun."""

    def say() -> None:
        getattr(log, level)(event, **fields)

    if logging.getLogger(NAME).isEnabledFor(getattr(logging, level.upper())):
        transaction.on_commit(say, robust=True)


def listed(rows: Collection[object], **places: str | int | None) -> dict[str, object]:
    """The ids of many rows as fields: `listed(messages, message_id="id")` is `{"message_id": ["0198…", …], "more": 0}`.

    A place is an attribute, an index, or None for the row itself. A list has at most 100 ids, in the order of the rows,
    and `more` says how many rows follow; lists without any value are left out. A `trace_id` is read from a traceparent.
    UUIDs stay what they are: spelt here they would take as long as the rest of a line, and msgspec spells them itself.
    """
    first = list(islice(rows, MOST_IDS))
    fields: dict[str, object] = {}
    for name, place in places.items():
        ids: list[Any] = first if place is None else list(map(_getter(place), first))
        if not PLAIN.issuperset(map(type, ids)):
            ids = ["" if value is None else value if isinstance(value, UUID) else str(value) for value in ids]
        if any(ids):
            fields[name] = [value[TRACE] for value in ids] if name == "trace_id" else ids
    fields["more"] = len(rows) - len(first)
    return fields


def _getter(place: str | int) -> Callable[[Any], object]:
    return attrgetter(place) if isinstance(place, str) else itemgetter(place)


class LineFormatter(structlog.stdlib.ProcessorFormatter):
    """Structlog's, but a line of ours is rendered as it is: what copies its record for other formatters takes as long again."""

    def __init__(self, render: Callable[[MutableMapping[str, Any]], str]) -> None:
        renderers: list[Processor] = [self.remove_processors_meta, lambda logger, method, event: render(event)]
        super().__init__(processors=renderers, foreign_pre_chain=SHARED)
        self.render = render

    def format(self, record: logging.LogRecord) -> str:
        event: Any = record.msg
        return self.render(event) if hasattr(record, "_logger") else super().format(record)


def as_json(event: MutableMapping[str, Any]) -> str:
    """One object. Msgspec takes a fifth of the time; the standard library's escapes a text that is not ASCII."""
    try:
        line = msgspec.json.encode(event, enc_hook=repr)
        if line.isascii():
            return line.decode()
    except (TypeError, ValueError):
        pass  # a lone surrogate, a key that is no text
    return json.dumps(event, default=lambda value: str(value) if isinstance(value, UUID) else repr(value))


CONSOLE = structlog.dev.ConsoleRenderer(colors=False)


def on_console(event: MutableMapping[str, Any]) -> str:
    """For people."""
    return visible(str(CONSOLE(None, "", spelt(event))))


def spelt(event: MutableMapping[str, Any]) -> dict[str, Any]:
    """The fields of a line with ids as people read them."""
    return {name: [*map(str, value)] if isinstance(value, list) else value for name, value in event.items()}
