"""The one loop that every worker runs, and the base of the commands that start it."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import count
from types import FrameType
from typing import Any, TypeVar

from django.conf import settings
from django.core.management.base import CommandError
from django.db import DatabaseError, InterfaceError, close_old_connections, connection, connections

from config.checks import registries_import
from config.database.retry import Remedy, Stale, remedy_for, wait_for_rerun
from config.database.tables import require_tables
from config.environment.env import BadSetting
from config.kafka.client import InvalidSessionTimeoutError, KafkaError, in_one_line
from config.kafka.consumer.ports import ConsumerStopped
from config.processes.alive import reporting
from config.processes.commands import VisibleCommand
from config.telemetry import metrics
from config.telemetry.activity import activity
from config.telemetry.logs import log
from config.telemetry.redaction import one_line

# -- The loop ------------------------------------------------------------------------------------------------
TRIES_ONCE = 5  # a job of cron must end

Options = dict[str, Any]  # what the command line says, by name
Tick = Callable[[], int]
Result = TypeVar("Result")


class StopEvent(threading.Event):
    """Set by a signal, or by a part of the worker that failed and takes the others with it."""

    asked = False  # by a signal


@contextmanager
def stop_on_signal(ends_within: float | None = None) -> Iterator[StopEvent]:
    """An event that SIGTERM or SIGINT sets; a second signal acts as it did before.

    If the block has not ended `ends_within` seconds after the first, the process ends without it, as if it were killed:
    a driver waits for ever for a server that was cut off without a word. What is `awaited_at_the_end` is looked after
    once more each time so many seconds are over.
    None: the block takes as long as it takes.
    """
    stop = StopEvent()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    over = threading.Event()
    # The interpreter itself writes the numbers of signals there, also while this thread is inside of a driver, where no
    # handler runs. And a handler must not call stop.set(): it needs the lock that this thread may be about to release.
    numbers, woken = socket.socketpair()
    woken.setblocking(False)

    def restore(*_signal: int | FrameType | None) -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def obey() -> None:
        while number := numbers.recv(1):
            if number[0] in previous:
                stop.asked = True
                stop.set()
                if ends_within is not None:
                    _end_after(ends_within, over)
                return

    thread = threading.Thread(target=obey, name="signals", daemon=True)
    thread.start()
    before = signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    for number in previous:
        signal.signal(number, restore)
    try:
        yield stop
    finally:
        restore()
        signal.set_wakeup_fd(before)
        over.set()
        woken.close()
        thread.join()
        numbers.close()


_calls: dict[object, float] = {}  # what must not be cut, and until when (monotonic)


@contextmanager
def awaited_at_the_end(seconds: float) -> Iterator[None]:
    """A call to others that happens twice if nobody hears how it ended: the process ends behind it, or after `seconds`."""
    call = object()
    _calls[call] = time.monotonic() + seconds
    try:
        yield
    finally:
        del _calls[call]


def _end_after(seconds: float, over: threading.Event) -> None:
    """End this process in the middle of what it waits for: whoever comes next finds what a kill leaves."""
    while not over.wait(seconds):
        if all(until <= time.monotonic() for until in list(_calls.values())):
            break
    else:
        return
    log.warning("ended_without_waiting", seconds=seconds)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


def watch_parent(gone: Callable[[], object]) -> None:
    """Call `gone`, on a thread of its own, when the process that started this one has ended."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        gone()

    threading.Thread(target=watch, name="parent", daemon=True).start()


def hang_up() -> None:
    """End at once, as when the terminal is closed; `nohup` keeps it alive."""
    os.kill(os.getpid(), signal.SIGHUP)


def run(
    tick: Tick,
    stop: threading.Event,
    *,
    pause: Callable[[], float] = lambda: 1.0,
    once: bool = False,
    until_idle: float | None = None,
) -> None:
    """Call `tick` until `stop` is set.

    `tick` returns how much it did; zero means sleep for `pause()` seconds, woken at once by `stop`.
    `once` drains what is due now and returns; `until_idle` returns after that many seconds without work.
    A database that is away is waited for, a deadlock is tried again at once.
    """
    last_work = time.monotonic()
    patient, asking = Patience(stop, tries=TRIES_ONCE if once else None), Patience(stop, tries=None)
    while not stop.is_set():
        close_old_connections()
        done = patient.attempt(tick)
        activity.came_round(done or 0)
        if done:
            last_work = time.monotonic()
            continue
        idle = time.monotonic() - last_work
        if done == 0 and (once or (until_idle is not None and idle >= until_idle)):
            return
        wait = asking.attempt(pause) or 0.0
        stop.wait(wait if until_idle is None else min(wait, until_idle / 4))


def wait_for_database(stop: threading.Event, *, once: bool = False) -> None:
    """Return when the database answers, or when told to stop.

    A server that starts, stops, is full or has failed over is away for a while, and so is a pooler in front of it.
    With `once` the database's own error is raised after a few tries.
    """
    for failures in count(1):
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")  # a pooler lets in whoever comes, also when its server is away
            return
        except (DatabaseError, InterfaceError) as error:
            if once and failures == TRIES_ONCE:
                raise
            wait_for_rerun("start", error, Remedy.WAIT, failures, stop.wait)
        if stop.is_set():
            return


def together(jobs: Sequence[Callable[[], None]], stop: threading.Event) -> None:
    """Run jobs side by side, the first in this thread; the first failure stops all of them and is raised."""
    failures: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except Exception as error:  # noqa: BLE001 (raised by the main thread below)
            failures.append(error)
            stop.set()

    def in_thread(job: Callable[[], None]) -> None:
        try:
            guarded(job)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=in_thread, args=[job]) for job in jobs[1:]]
    for thread in threads:
        thread.start()
    if jobs:
        guarded(jobs[0])
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def until_it_stands(
    unit: Callable[[], Result],
    worker: str,
    worth_it: Callable[[int, Remedy], bool] = lambda failures, remedy: remedy is Remedy.RERUN and failures < 5,
) -> Result:
    """Run a transaction again while `worth_it(failures so far, what the last one asks for)` says so: four times after deadlocks.

    For results of what has happened already: unless they are written down, it happens twice.
    """
    for failures in count(1):
        try:
            return unit()
        except (DatabaseError, InterfaceError, Stale) as error:
            remedy = remedy_for(error)
            if remedy not in (Remedy.RERUN, Remedy.WAIT) or not worth_it(failures, remedy):
                raise
            wait_for_rerun(worker, error, remedy, failures, longest=0.5)
    raise AssertionError("count() does not end")


class Patience:
    """Calls a function; waits after a failure of the database that is worth another try, raises everything else."""

    def __init__(self, stop: threading.Event, tries: int | None) -> None:
        self.stop = stop
        self.tries = tries  # None: for ever
        self.failures = 0

    def attempt(self, function: Callable[[], Result]) -> Result | None:
        """The function's result, or None after a failure that is worth another try."""
        try:
            result = function()
        except (DatabaseError, InterfaceError, Stale) as error:
            remedy, self.failures = remedy_for(error), self.failures + 1
            if remedy not in (Remedy.RERUN, Remedy.WAIT) or self.failures == self.tries:
                raise
            wait_for_rerun("loop", error, remedy, self.failures, self.stop.wait)
            return None
        self.failures = 0
        return result


# -- The commands --------------------------------------------------------------------------------------------
class WorkerCommand(VisibleCommand):
    """A command that runs until SIGTERM; subclasses implement `work`."""

    requires_system_checks: list[str] = []
    needs_tables = True
    serves_metrics = True
    not_missed_with: Sequence[str] = ("once", "until_idle")  # options with which it ends by itself
    # Seconds after SIGTERM, whoever does not answer; None: it ends others, and waits for them.
    ends_within: float | None = 8.0

    def add_arguments(self, parser: ArgumentParser) -> None:
        group = parser.add_mutually_exclusive_group()
        group.add_argument("--once", action="store_true", help="do what is due now, then exit")
        group.add_argument("--until-idle", type=float, metavar="S", help="exit after S seconds with nothing to do")
        self.add_metrics_port(parser, "serve /metrics on port P")

    def add_metrics_port(self, parser: ArgumentParser, help_text: str) -> None:
        parser.add_argument("--metrics-port", type=int, default=settings.METRICS_PORT, metavar="P", help=help_text)

    def handle(self, *args: object, **options: object) -> None:
        # From the first moment on: a worker that is told to stop while it starts ends like any other.
        with stop_on_signal(self.ends_within) as stop:
            self._prepare(stop, options)
            if stop.is_set():
                return
            with reporting(type(self).__module__.rpartition(".")[2]) if self.reports(options) else nullcontext():
                self._work(stop, options)

    def reports(self, options: Options) -> bool:
        """Whether it is missed when it is gone."""
        return all(options.get(name) in (None, False) for name in self.not_missed_with)

    def _work(self, stop: StopEvent, options: Options) -> None:
        try:
            self.work(stop, options)
        except (BadSetting, ConsumerStopped) as error:
            raise CommandError(str(error)) from error
        except InvalidSessionTimeoutError as error:
            timeout = settings.KAFKA_SESSION_TIMEOUT_MS
            raise CommandError(f"KAFKA_SESSION_TIMEOUT_MS={timeout}: {one_line(error)}") from error
        except KafkaError as error:
            if stop.asked:  # it was still looking for a broker that is away
                return
            raise CommandError(in_one_line(error)) from error

    def _prepare(self, stop: threading.Event, options: Options) -> None:
        # What cannot be imported would fail record after record. What is ours can be: the suite imports it.
        if faults := registries_import(None) if settings.ADDED_APPS else ():
            raise CommandError("; ".join(fault.msg for fault in faults))
        try:
            metrics.serve(options["metrics_port"] if self.serves_metrics else 0)
        except OSError as error:
            place = f"METRICS_HOST={settings.METRICS_HOST} --metrics-port {options['metrics_port']}"
            raise CommandError(f"{place}: {error.strerror}") from error
        if self.needs_tables:
            wait_for_database(stop, once=bool(options.get("once")))
            require_tables()
        tune_interpreter()

    def work(self, stop: threading.Event, options: Options) -> None:
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
