"""Whether a process is alive: who asks on the same host looks, all others go by its reports."""

from __future__ import annotations

import atexit
import hashlib
import os
import socket
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

from django.conf import settings
from django.utils.module_loading import import_string

from config.telemetry.redaction import error_text, without_addresses

PROC = Path("/proc")
ENDED = ("Z", "X")  # states of a process that only its parent still knows
USAGE = 2  # the exit code of a command that was called wrongly


# -- Looking at a process of this host -----------------------------------------------------------------------
@cache
def place() -> str:
    """Where process ids mean the same as here: this host, since its last start, in this container."""
    host = _first_line("/proc/sys/kernel/random/boot_id") or _first_line("/etc/machine-id") or str(uuid.getnode())
    try:
        namespace = os.readlink(PROC / "self" / "ns" / "pid")
    except OSError:
        namespace = ""
    return hashlib.sha256(f"{socket.gethostname()} {host} {namespace}".encode()).hexdigest()[:32]


def mark_of(pid: int) -> str | None:
    """Tells a process from a later one with its number; empty when there is none, or nothing but its exit code.

    None: there is one, and nothing tells which: it is another account's, or this system has no /proc.
    """
    try:
        stat = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None if _takes_signals(pid) else ""
    state, *rest = stat.rpartition(")")[2].split()  # behind its name, which may hold anything
    return "" if state in ENDED else rest[18]  # when it started, in ticks since the host did


def _takes_signals(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


# -- Reporting that this process lives -----------------------------------------------------------------------
@dataclass(frozen=True)
class Identity:
    """Which process this is, as its reports name it."""

    command: str
    arguments: str
    host: str
    place: str
    pid: int
    mark: str
    version: str


class Report(NamedTuple):
    """That a process lived; `run` tells it from all others, also from its own before it was started again."""

    at: datetime
    run: str


class Reporter(Protocol):
    """`settings.HEARTBEAT`: says from time to time that this process lives, on a thread of its own."""

    def __init__(self, identity: Identity) -> None: ...

    def start(self) -> None: ...

    def stop(self, error: str) -> None:
        """It ends: told to, or by this error."""

    @staticmethod
    def newest(alias: str) -> Report | None:
        """The last report of any process, as this database has it."""

    @staticmethod
    def knows(run: str) -> bool:
        """Whether the primary has reports of this run of a process."""


def identity_of(command: str) -> Identity:
    """This process, running that command."""
    given = sys.argv[sys.argv.index(command) + 1 :] if command in sys.argv else []
    version = f"{settings.VERSION} {settings.RELEASE}".strip()
    pid = os.getpid()
    return Identity(
        command, without_addresses(" ".join(given)), socket.gethostname(), place(), pid, mark_of(pid) or "", version
    )


def start_reporting(command: str) -> Reporter | None:
    """Report from now on; None when `HEARTBEAT` is empty."""
    if not (make := _reporter()):
        return None
    reporter = make(identity_of(command))
    reporter.start()
    return reporter


def newest_report(alias: str) -> Report | None:
    """The last report of any process, as the database of this alias has it; None: none is known."""
    return reporter.newest(alias) if (reporter := _reporter()) else None


def is_of_ours(report: Report) -> bool:
    """Whether the primary knows who reported: of another installation it does not."""
    return bool((reporter := _reporter()) and reporter.knows(report.run))


def _reporter() -> type[Reporter] | None:
    return import_string(settings.HEARTBEAT) if settings.HEARTBEAT else None


@contextmanager
def reporting(command: str) -> Iterator[None]:
    """Report until the end of the block, and how that ended."""
    reporter = start_reporting(command)
    error = ""
    try:
        yield
    except BaseException as ended:
        error = "" if getattr(ended, "returncode", 1) == USAGE else error_text(ended) or type(ended).__name__
        raise
    finally:
        if reporter:
            reporter.stop(error)


_until_exit: list[Reporter] = []


def report_until_exit(command: str) -> None:
    """Report until this process ends: for one whose loop is not ours."""
    if reporter := start_reporting(command):
        _until_exit.append(reporter)
        atexit.register(end_reports)


def end_reports() -> None:
    """Report that this process ends as it was told to."""
    while _until_exit:
        _until_exit.pop().stop("")
