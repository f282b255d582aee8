"""Python processes that start in a third of the time: forked from one that has imported the libraries, never Spillway.

Half of the suite's processor time was Python importing Django, Celery and the Kafka client once a worker. A process that
starts here runs the same program with the same environment: what it has in memory beforehand has read no setting.
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
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.tree import ROOT

LIBRARIES = (
    "MySQLdb", "celery", "celery.fixups.django", "celery.schedules", "django.contrib.admin", "django.core.mail",
    "django.core.management", "django.db.backends.base.base", "django.db.migrations.executor", "django.db.models.sql.compiler",
    "django.template.loader_tags", "django.views.debug", "environ", "http.server", "kafka", "kombu", "msgspec",
    "prometheus_client", "psycopg", "smtplib", "sqlite3", "structlog", "urllib.request", "whitenoise.base",
)  # fmt: skip
# prctl(2), which Linux alone has: orphans below this process become its children.
PR_SET_CHILD_SUBREAPER = 36
LENGTH = 8  # bytes of a number on the way


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
    """What the interpreter reads before the first line of a program: too late for one that runs already."""
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


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
                socket.send_fds(self.socket, [len(request).to_bytes(LENGTH)], streams)
                self.socket.sendall(request)
                pid = int.from_bytes(self.socket.recv(LENGTH))
            finally:
                adopt_orphans(False)
        if not pid:
            raise RuntimeError("the process that forks workers has ended")
        return pid


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
    gc.freeze()
    while (head := socket.recv_fds(link, LENGTH, 3))[0]:
        request = link.recv(int.from_bytes(head[0]), socket.MSG_WAITALL)
        pid = fork_orphan()
        if not pid:
            link.close()
            run(**json.loads(request), streams=head[1])
            return
        for stream in head[1]:
            os.close(stream)
        link.sendall(pid.to_bytes(LENGTH))


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
    os.environ.update(environment)
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
