"""Python processes that start in a fraction of the time: forked from one that has imported the libraries.

Half of the suite's processor time was Python importing Django, Celery and the Kafka client once a worker. A process that
starts here runs the same program with the same environment: what it has in memory beforehand has read no setting. What
sets Django up anyway is forked from a process that has done so with that very environment, so that the second worker of
a test imports nothing of Spillway either.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tests.tree import ROOT

LIBRARIES = (
    "celery", "celery.fixups.django", "celery.schedules", "cryptography.fernet", "django.contrib.admin",
    "django.core.mail", "django.core.management", "django.db.backends.base.base", "django.db.migrations.executor",
    "django.db.models.sql.compiler", "django.template.loader_tags", "django.views.debug", "environ", "http.server", "kafka",
    "kombu", "msgspec", "prometheus_client", "pydantic.dataclasses", "pydantic.networks", "smtplib", "sqlite3",
    "structlog", "urllib.request", "whitenoise.base",
)  # fmt: skip
DRIVERS = ("MySQLdb", "psycopg")  # of databases that a machine may have to do without
# prctl(2), which Linux alone has: orphans below this process become its children.
PR_SET_CHILD_SUBREAPER = 36
LENGTH = 8  # bytes of a number on the way
KEPT = 2  # environments with Django set up: those of a test, and one that differs for one of its workers
BY_DJANGO: dict[str, str] = {}  # what it writes into the environment where it is set up: TZ
NO_SETTING = {"PYTEST_CURRENT_TEST"}  # differs from start to start, and nobody reads it


class Prepared(subprocess.Popen[Any]):
    """`Prepared([sys.executable, "manage.py", …], cwd=…, env=…)`: a child like any other, only that it was forked elsewhere."""

    def _execute_child(
        self, args: Sequence[str], executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any,
        startupinfo: Any, creationflags: Any, shell: Any, p2cread: int, p2cwrite: int, c2pread: int, c2pwrite: int,
        errread: int, errwrite: int, *more: Any,
    ) -> None:  # fmt: skip
        """What Popen calls to fork; a stream that is -1 is ours."""
        assert args[0] == sys.executable
        environment = dict(os.environ if env is None else env)
        new_session = more[5]  # behind restore_signals, gid, gids, uid and umask
        if preexec_fn or pass_fds or new_session or read_by_python(environment) != read_by_python(os.environ):
            super()._execute_child(  # type: ignore[misc]
                args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell,
                p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *more,
            )  # fmt: skip
            return
        streams = [stream if stream >= 0 else ours for ours, stream in enumerate([p2cread, c2pwrite, errwrite])]
        request = {"program": args[1:], "folder": str(cwd or Path.cwd()), "environment": environment}
        try:
            self.pid = fork_server().fork(json.dumps(request).encode(), streams)
            self._child_created = True
        finally:
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]


def read_by_python(environment: Mapping[str, str]) -> dict[str, str]:
    """What loader and interpreter read before the first line of a program: too late for one that runs already."""
    return {name: value for name, value in environment.items() if name.startswith(("PYTHON", "LD_"))}


PythonProcess = Prepared if sys.platform == "linux" else subprocess.Popen


def run_python(*program: str, env: Mapping[str, str], cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """As subprocess.run does, to the end, with what it printed."""
    command = [sys.executable, *program]
    with PythonProcess(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        printed, said = process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, printed, said)


class ForkServer:
    """The process that forks them, asked through a socket; it ends with the one that asks."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.socket, theirs = socket.socketpair()
        environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            )  # fmt: skip

    def fork(self, request: bytes, streams: Sequence[int]) -> int:
        """A pid. It is an orphan when it comes, and ours; for this moment only, as a test may look for orphans."""
        with self.lock:
            adopt_orphans(True)
            try:
                ask(self.socket, request, streams)
                pid = int.from_bytes(self.socket.recv(LENGTH))
            finally:
                adopt_orphans(False)
        if not pid:
            raise RuntimeError("the process that forks workers has ended")
        return pid


def ask(link: socket.socket, request: bytes, streams: Sequence[int]) -> None:
    socket.send_fds(link, [len(request).to_bytes(LENGTH)], streams)
    link.sendall(request)


@cache
def fork_server() -> ForkServer:
    return ForkServer()


def adopt_orphans(whether: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, int(whether), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def main() -> None:
    link = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, with which this one ends
    for library in LIBRARIES:
        importlib.import_module(library)
    for driver in DRIVERS:
        with suppress(ImportError):
            importlib.import_module(driver)
    gc.freeze()
    serve(link, {})


def serve(link: socket.socket, ready: dict[str, Ready | None] | None) -> None:
    """Fork what is asked for until nobody asks any more; `ready` are the processes that may do it instead."""
    while (head := socket.recv_fds(link, LENGTH, 3))[0]:
        request, streams = link.recv(int.from_bytes(head[0]), socket.MSG_WAITALL), head[1]
        pid = 0 if ready is None else fork_ready(request, streams, link, ready)
        if not pid and not (pid := fork_orphan()):
            close(link, ready)
            run(**json.loads(request), streams=streams)
            return
        for stream in streams:
            os.close(stream)
        link.sendall(pid.to_bytes(LENGTH))


def fork_ready(request: bytes, streams: list[int], link: socket.socket, ready: dict[str, Ready | None]) -> int:
    """A pid; 0 where Django is not set up for it."""
    wanted = json.loads(request)
    if not sets_django_up(wanted["program"]) or Path(wanted["folder"]) != ROOT:
        return 0
    settings = {name: value for name, value in wanted["environment"].items() if name not in NO_SETTING}
    key = json.dumps(settings, sort_keys=True)
    if key not in ready:
        while len(ready) >= KEPT:
            if oldest := ready.pop(next(iter(ready))):
                oldest.end()
        ready[key] = Ready(settings, lambda: close(link, ready, streams)).or_none()
    chosen = ready[key] = ready.pop(key)  # the last one used stands last
    return chosen.fork(request, streams) if chosen else 0


def sets_django_up(program: list[str]) -> bool:
    return program[0] == "manage.py" or (program[0] == "-m" and program[1].startswith("tests."))


def close(link: socket.socket, ready: dict[str, Ready | None] | None, streams: Sequence[int] = ()) -> None:
    """What only the process that forks may have open."""
    for owned in [link, *(other.link for other in (ready or {}).values() if other)]:
        owned.close()
    for stream in streams:
        os.close(stream)


class Ready:
    """A process that has set Django up with one environment, and forks those that run in it."""

    def __init__(self, environment: dict[str, str], close_others: Callable[[], None]) -> None:
        self.link, theirs = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            self.link.close()
            close_others()
            if set_up(environment):
                theirs.sendall(b"1")
                serve(theirs, None)
            sys.exit()  # the end of each process that was forked here as well
        theirs.close()
        self.stands = bool(self.link.recv(1))

    def or_none(self) -> Ready | None:
        """Itself, unless settings are refused or something was said: that, each process has to say by itself."""
        if self.stands:
            return self
        self.end()
        return None

    def fork(self, request: bytes, streams: Sequence[int]) -> int:
        ask(self.link, request, streams)
        return int.from_bytes(self.link.recv(LENGTH))

    def end(self) -> None:
        self.link.close()
        os.waitpid(self.pid, 0)


def set_up(environment: dict[str, str]) -> bool:
    """Whether it went well without a word."""
    before = {"DJANGO_SETTINGS_MODULE": "config.settings", **environment}
    os.environ.clear()
    os.environ.update(before)
    with TemporaryFile() as said:
        for stream in (1, 2):
            os.dup2(said.fileno(), stream)
        try:
            importlib.import_module("django").setup()
        except BaseException:
            return False
        sys.stdout.flush(), sys.stderr.flush()
        silent = not said.tell()
    BY_DJANGO.update({name: value for name, value in os.environ.items() if name not in before})
    gc.freeze()
    return silent


def fork_orphan() -> int:
    """Its pid; 0 in the process itself."""
    ours, theirs = os.pipe()
    if between := os.fork():
        os.waitpid(between, 0)
        os.close(theirs)
        with open(ours, "rb") as answer:
            return int.from_bytes(answer.read())
    parent = os.getpid()
    if pid := os.fork():
        os.write(theirs, pid.to_bytes(LENGTH))
        os._exit(0)
    os.close(ours)
    os.close(theirs)
    while os.getppid() == parent:  # it may ask who its parent is
        time.sleep(0.001)
    return 0


def run(program: list[str], folder: str, environment: dict[str, str], streams: list[int]) -> None:
    """As Python does when it starts."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update({**BY_DJANGO, **environment})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if program[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *program[2:]], ""
        exec(program[1], {"__name__": "__main__"})  # noqa: S102 - as Python itself
    elif program[0] == "-m":
        sys.argv, sys.path[0] = program[1:], folder
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = program, str(Path(program[0]).resolve().parent)
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main()
