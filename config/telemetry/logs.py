"""Structured logs: one JSON object a line, or colours on a console; each with a correlation id."""

from __future__ import annotations

import json
import logging.config
import sys
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any, Literal
from uuid import UUID

import msgspec
import structlog
from django.db import transaction

from config.telemetry.redaction import redact, trace_of, visible
from config.telemetry.tracing import trace_id_of, traceparent

NAME = "spillway"
MOST_IDS = 100  # of each kind in a line
TRACE = slice(3, 35)  # of a traceparent
PLAIN = frozenset({str, UUID})


class Logger:
    """Lines of ours: `log.info("batch_sent", batch_id=…)`.

    Structlog's own loggers and standard processors take as long as all the rest of a line, and a relay writes one a mail.
    """

    def __init__(self) -> None:
        self._logger = logging.getLogger(NAME)

    def info(self, event: str, /, **fields: object) -> None:
        self.say(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        self.say(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        self.say(logging.ERROR, event, fields)

    def exception(self, event: str, /, **fields: object) -> None:
        """With the traceback of the exception that is handled."""
        self.say(logging.ERROR, event, {**fields, "exception": trace_of(sys.exception())})

    def says(self, level: int) -> bool:
        return self._logger.isEnabledFor(level)

    def say(self, level: int, event: str, fields: Mapping[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            line = completed({**fields, "event": event}, NAME, level)
            self._logger.handle(logging.LogRecord(NAME, level, "", 0, line, (), None))


log = Logger()


def completed(line: dict[str, object], logger: str, level: int) -> dict[str, object]:
    """A line with what each has: the fields of its context, its trace, level, logger and time; without what nobody may read."""
    for name, value in structlog.contextvars.get_contextvars().items():
        line.setdefault(name, value)
    if trace_id := trace_id_of(traceparent()):
        line.setdefault("trace_id", trace_id)
    line["level"], line["logger"] = logging.getLevelName(level).lower(), logger
    line["timestamp"] = f"{datetime.now(UTC).isoformat()[:-6]}Z"
    return redact(line)


def configure(options: dict[str, str]) -> None:
    """Django's LOGGING_CONFIG hook; `options` holds level and format."""
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
    number = getattr(logging, level.upper())
    if log.says(number):
        transaction.on_commit(lambda: log.say(number, event, fields), robust=True)


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


class LineFormatter(logging.Formatter):
    """A line of ours is rendered as it is; a text, also one that others write under our name, becomes one of ours first."""

    def __init__(self, render: Callable[[Mapping[str, object]], str]) -> None:
        super().__init__()
        self.render = render

    def format(self, record: logging.LogRecord) -> str:
        line: Any = record.msg
        if record.name != NAME or not isinstance(line, dict):
            line = completed({"event": record.getMessage()}, record.name, record.levelno)
            if record.exc_info:
                line["exception"] = trace_of(record.exc_info[1])
        return self.render(line)


def as_json(event: Mapping[str, object]) -> str:
    """One object. Msgspec takes a fifth of the time; the standard library's escapes a text that is not ASCII."""
    try:
        line = msgspec.json.encode(event, enc_hook=repr)
        if line.isascii():
            return line.decode()
    except (TypeError, ValueError):
        pass  # a lone surrogate, a key that is no text
    return json.dumps(event, default=lambda value: str(value) if isinstance(value, UUID) else repr(value))


CONSOLE = structlog.dev.ConsoleRenderer(colors=False)


def on_console(event: Mapping[str, object]) -> str:
    """For people."""
    return visible(str(CONSOLE(None, "", spelt(event))))


def spelt(event: Mapping[str, object]) -> dict[str, Any]:
    """The fields of a line with ids as people read them."""
    return {name: [*map(str, value)] if isinstance(value, list) else value for name, value in event.items()}
