"""The base of every worker command: common flags, a stop on SIGTERM, one line for an error an operator can mend."""

from __future__ import annotations

import gc
import sys
import threading
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from config.database.tables import require_tables
from config.environment.env import BadSetting
from config.kafka.client import InvalidSessionTimeoutError, KafkaError
from config.kafka.runtime.consumer import ConsumerStopped
from config.processes.loop import stop_on_signal, wait_for_database
from config.telemetry import metrics
from config.telemetry.visible import VisibleCommand


class WorkerCommand(VisibleCommand):
    """A command that runs until SIGTERM; subclasses implement `work`."""

    requires_system_checks: list[str] = []
    needs_tables = True
    serves_metrics = True

    def add_arguments(self, parser: ArgumentParser) -> None:
        group = parser.add_mutually_exclusive_group()
        group.add_argument("--once", action="store_true", help="do what is due now, then exit")
        group.add_argument("--until-idle", type=float, metavar="S", help="exit after S seconds with nothing to do")
        self.add_metrics_port(parser, "serve /metrics on port P")

    def add_metrics_port(self, parser: ArgumentParser, help_text: str) -> None:
        parser.add_argument("--metrics-port", type=int, default=settings.METRICS_PORT, metavar="P", help=help_text)

    def handle(self, *args: Any, **options: Any) -> None:
        # From the first moment on: a worker that is told to stop while it starts ends like any other.
        with stop_on_signal() as stop:
            self._prepare(stop, options)
            if stop.is_set():
                return
            try:
                self.work(stop, options)
            except (BadSetting, ConsumerStopped) as error:
                raise CommandError(str(error)) from error
            except InvalidSessionTimeoutError as error:
                timeout = settings.KAFKA_SESSION_TIMEOUT_MS
                raise CommandError(f"KAFKA_SESSION_TIMEOUT_MS={timeout}: {_one_line(error)}") from error
            except KafkaError as error:
                servers = ",".join(settings.KAFKA_BOOTSTRAP_SERVERS)
                raise CommandError(f"KAFKA_BOOTSTRAP_SERVERS={servers}: {_one_line(error)}") from error

    def _prepare(self, stop: threading.Event, options: dict[str, Any]) -> None:
        try:
            metrics.serve(options["metrics_port"] if self.serves_metrics else 0)
        except OSError as error:
            place = f"METRICS_HOST={settings.METRICS_HOST} --metrics-port {options['metrics_port']}"
            raise CommandError(f"{place}: {error.strerror}") from error
        if self.needs_tables:
            wait_for_database(stop, once=bool(options.get("once")))
            require_tables()
        tune_interpreter()

    def work(self, stop: threading.Event, options: dict[str, Any]) -> None:
        raise NotImplementedError


class ReaderCommand(WorkerCommand):
    """A worker that reads topics."""

    accept_reset = (
        "a topic was created again, or part of its log is gone: go on from its beginning; behind what is damaged in it"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--accept-reset", action="store_true", help=self.accept_reset)


def tune_interpreter() -> None:
    """Half as many events a second again, for an ingester: 35 200, not 23 100 (PostgreSQL, 2 000 a batch).

    Records and rows hold no cycles, so looking for some after every 700 of them is wasted time. And a thread
    that waits for the interpreter between two statements gets it after 0.5 ms, not after 5.
    """
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)
    sys.setswitchinterval(0.0005)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if type(error).__name__ in text else f"{type(error).__name__}: {text}"
