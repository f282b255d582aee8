"""Structured logs: one JSON object a line, or colours on a console; each with a correlation id."""

from __future__ import annotations

import json
import logging.config
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sized
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache, cached_property
from itertools import islice
from operator import attrgetter, itemgetter
from time import time
from types import MappingProxyType
from typing import Any, Literal, TextIO, cast
from uuid import UUID

import msgspec
import structlog
from django.conf import settings
from django.db import transaction

from config.telemetry.redaction import masked_error, may_hold_address, of_others, redact, trace_of, visible
from config.telemetry.tracing import trace_id_of, traceparent

NAME = "spillway"
MOST_IDS = 100  # of each kind in a line
MANY = 10  # ids of a list that is spelt apart, once for all lines that have it
TRACE = slice(3, 35)  # of a traceparent
PLAIN = frozenset({str, UUID})
REFUSED = "django.security"  # what strangers sent: a Host, an Origin, a cookie; a traceback of it says nothing of ours
NO_BLANKS = ",", ":"  # between the fields, as msgspec writes them: somebody looks for `"event":"messages_sent"`
CONTEXT: ContextVar[Mapping[str, object]] = ContextVar("fields of each line of a request", default=MappingProxyType({}))


class Logger:
    """Lines of ours: `log.info("batch_sent", batch_id=…)`.

    Structlog's own loggers and standard processors take as long as all the rest of a line, and a relay writes one a mail.
    """

    def __init__(self) -> None:
        self._logger = logging.getLogger(NAME)

    def info(self, event: str, /, ids: RowIds | None = None, **fields: object) -> None:
        self.say(logging.INFO, event, fields, ids)

    def warning(self, event: str, /, ids: RowIds | None = None, **fields: object) -> None:
        self.say(logging.WARNING, event, fields, ids)

    def error(self, event: str, /, ids: RowIds | None = None, **fields: object) -> None:
        self.say(logging.ERROR, event, fields, ids)

    def exception(self, event: str, /, **fields: object) -> None:
        """With the traceback of the exception that is handled."""
        self.say(logging.ERROR, event, {**fields, "exception": trace_of(sys.exception())})

    def says(self, level: int) -> bool:
        return self._logger.isEnabledFor(level)

    def say(self, level: int, event: str, fields: Mapping[str, object], ids: RowIds | None = None) -> None:
        if self._logger.isEnabledFor(level):
            line = completed({**fields, **(ids.fields if ids else {}), "event": event}, NAME, level)
            self._logger.handle(LineRecord(level, Line(line)))


class Line(dict[str, object]):
    """A line of ours on its way to a handler; a handler of somebody else, too, writes it as JSON."""

    def __str__(self) -> str:
        return as_json(self)


class LineRecord(logging.LogRecord):
    """A record of a line; where in the code and in which thread it was made, which most of its time goes into, nobody reads."""

    USUAL = vars(logging.LogRecord(NAME, logging.INFO, "", 0, "", (), None))

    def __init__(self, level: int, line: Line) -> None:
        self.__dict__.update(self.USUAL, levelno=level, levelname=logging.getLevelName(level), msg=line, created=time())


log = Logger()


def completed(line: dict[str, object], logger: str, level: int) -> dict[str, object]:
    """A line with what each has: the fields of its context, its trace, level, logger and time; without what nobody may read."""
    for name, value in CONTEXT.get().items():
        line.setdefault(name, value)
    if context := traceparent():
        line.setdefault("trace_id", trace_id_of(context))
    line["level"], line["logger"] = logging.getLevelName(level).lower(), logger
    line["timestamp"] = datetime.now(UTC)
    return redact(line)


def configure(options: dict[str, str]) -> None:
    """Django's LOGGING_CONFIG hook; `options` holds level and format."""
    handler = {"()": LineHandler, "render": on_console if options["format"] == "console" else as_json}
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "handlers": {"stderr": handler},
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
    CONTEXT.set({**CONTEXT.get(), **fields})


def begin(**fields: object) -> None:
    """A request has begun: its lines have these fields, and none of the one before."""
    CONTEXT.set(fields)


def correlation_id() -> str:
    """That of the request under way; empty outside of one."""
    return str(CONTEXT.get().get("correlation_id", ""))


def log_committed(
    event: str, level: Literal["info", "warning", "error"] = "info", /, ids: RowIds | None = None, **fields: object
) -> None:
    """Log when the transaction under way is committed, or now where there is none; never what is rolled back or rerun."""
    number = getattr(logging, level.upper())
    if log.says(number):
        if ids:
            fields |= ids.fields  # now: until the commit a row may change
        transaction.on_commit(lambda: log.say(number, event, fields), robust=True)


Place = str | int | Callable[[Any], object]  # of an id in a row


class RowIds:
    """The ids of many rows: `RowIds(messages, message_id="id")` adds `"message_id":["0198…", …],"more":0` to a line.

    A place is an attribute, an index, a function of the row, or None for the row itself. A list has at most 100 ids, in the order of the rows, and
    `more` says how many rows follow; lists without any value are left out. A `trace_id` is read from a traceparent.
    `RowIds(…) | RowIds(…)` has the lists of both, and the second one's `more`.

    They are read when a line that somebody wants has them, and once for all lines that do: that is most of what a line costs.
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
        """Each list; long ones as a piece of JSON, without the addresses in what others choose."""
        rows = list(islice(self._rows, MOST_IDS))
        fields: dict[str, object] = {}
        for name, place in self._places.items():
            ids: list[Any] = rows if place is None else list(map(_getter(place), rows))
            if any(ids):
                ids = _plain_ids(name, ids)
                fields[name] = ids if len(ids) < MANY else _spelt(name, ids)
        fields["more"] = max(self._number - MOST_IDS, 0)
        for other in self._beside:
            fields |= other.fields
        return fields


@cache
def _getter(place: Place) -> Callable[[Any], Any]:
    if callable(place):
        return place
    return attrgetter(place) if isinstance(place, str) else itemgetter(place)


def _plain_ids(name: str, ids: list[Any]) -> list[Any]:
    """As texts, "" where one is missing. UUIDs stay: spelt here they would take as long as the rest, and msgspec spells them."""
    if not PLAIN.issuperset(map(type, ids)):
        ids = ["" if value is None else value if isinstance(value, UUID) else str(value) for value in ids]
    return [value[TRACE] for value in ids] if name == "trace_id" else ids


def _spelt(name: str, ids: list[Any]) -> msgspec.Raw:
    text = as_json(ids)
    return msgspec.Raw(as_json(redact({name: ids})[name]) if may_hold_address(text) else text)


def _told_by_others(record: logging.LogRecord) -> dict[str, object]:
    """The fields of a record that others wrote; of a refused request without what a stranger chose."""
    text = record.getMessage()
    if str(record.name).startswith(REFUSED):
        return {"event": masked_error(text)}
    fields: dict[str, object] = {"event": of_others(text)}
    if record.exc_info:
        fields["exception"] = trace_of(record.exc_info[1], of_others)
    return fields


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes a line of ours as it is; a text, also one that others write under our name, becomes one of ours first.

    All in one method: between two lines a worker does so much else that each call costs what it costs the first time.
    """

    def __init__(self, render: Callable[[Mapping[str, object]], str]) -> None:
        super().__init__()
        self.render = render

    def handle(self, record: logging.LogRecord) -> bool:
        try:
            line: Any = record.msg
            if not isinstance(line, Line):
                line = completed(_told_by_others(record), record.name, record.levelno)
            text = f"{self.render(line)}\n"
            with self.lock:  # type: ignore[union-attr]
                self.stream.write(text)  # stderr is flushed at the end of each line
        except Exception:  # noqa: BLE001 (as each handler of the standard library does)
            self.handleError(record)
        return True


def as_json(value: object) -> str:
    """Of a line or a part of it. Msgspec takes a fifth of the time; the standard library's escapes a text that is not ASCII."""
    try:
        text = msgspec.json.encode(value, enc_hook=repr)
        return text.decode() if text.isascii() else json.dumps(json.loads(text), separators=NO_BLANKS)
    except (TypeError, ValueError):
        pass  # a lone surrogate, a key that is no text
    return json.dumps(value, default=_plain, separators=NO_BLANKS)


def _plain(value: object) -> object:
    try:
        return json.loads(msgspec.json.encode(value))
    except (TypeError, ValueError):
        return repr(value)


CONSOLE = structlog.dev.ConsoleRenderer(colors=False)


def on_console(event: Mapping[str, object]) -> str:
    """For people."""
    return visible(str(CONSOLE(None, "", read(event))))


def read(event: Mapping[str, object]) -> dict[str, Any]:
    """The fields of a line as somebody reads them: ids and times as texts."""
    texts: dict[str, Any] = {}
    for name, value in event.items():
        pieces = _plain(value) if isinstance(value, msgspec.Raw | datetime) else value
        texts[name] = [*map(str, pieces)] if isinstance(pieces, list) else pieces
    return texts
