"""Structured logs: one JSON object a line, or colours on a console; each with a correlation id."""

from __future__ import annotations

import logging.config

import structlog
from structlog.typing import Processor

from config.telemetry.redaction import redact, trace_of
from config.telemetry.tracing import add_trace_id
from config.telemetry.visible import visible

log: structlog.stdlib.BoundLogger = structlog.get_logger("spillway")

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
    renderers: list[Processor] = [structlog.processors.JSONRenderer()]
    if options["format"] == "console":
        renderers = [structlog.dev.ConsoleRenderer(colors=False), lambda logger, method, line: visible(str(line))]
    formatter = {
        "()": structlog.stdlib.ProcessorFormatter,
        "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        "foreign_pre_chain": SHARED,
    }
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
