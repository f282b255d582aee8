"""Takes out each guard in a copy of the tree, runs the tests that know of it, and says which of them nobody misses."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from tests.proof.guard import Guard
from tests.tree import ROOT

KILLED, SURVIVED, HUNG, BROKEN = "killed", "SURVIVED", "hung", "BROKEN"
LIMIT = 300  # seconds for the tests of a guard: who waits for longer has noticed that it is gone, too
PYTEST = ("-m", "pytest", "-q", "-x", "--reuse-db", "-p", "no:cacheprovider", "--show-capture=no", "--tb=no")
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".services", "var", "__pycache__", ".*_cache", "*.sqlite3*", "build")
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
TEST_FAILED, NO_SUCH_TEST = 1, (4, 5)  # exit codes of pytest


class Verdict(NamedTuple):
    guard: Guard
    verdict: str
    by: str  # the test that noticed, or why it could not be asked
    seconds: float


class Copy(NamedTuple):
    """A copy of the tree with a database of its own: what is changed in it, nobody else sees."""

    root: Path
    url: str  # DATABASE_URL of a server, or empty: SQLite

    def without(self, guard: Guard) -> Verdict:
        path, began = self.root / guard.file, time.monotonic()
        whole = path.read_text()
        if (times := whole.count(guard.old)) != 1:
            return Verdict(guard, BROKEN, f"its text stands {times} times in {guard.file}", 0)
        path.write_text(whole.replace(guard.old, guard.new))
        try:
            verdict, by = self.tests(guard.tests, guard.server)
        finally:
            path.write_text(whole)
        return Verdict(guard, verdict, by, time.monotonic() - began)

    def tests(self, names: str, server: bool) -> tuple[str, str]:
        """Killed, survived, hung or broken, and the first test that failed."""
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        environment["DATABASE_URL"] = self.url if server else f"sqlite:///{self.root}/spillway.sqlite3"
        command = [sys.executable, *PYTEST, *names.split()]
        try:
            ended = subprocess.run(
                command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=LIMIT
            )
        except subprocess.TimeoutExpired:
            return HUNG, f"behind {LIMIT} s"
        failed = FAILED.search(ended.stdout)
        if ended.returncode in NO_SUCH_TEST or (ended.returncode and not failed):
            return BROKEN, (ended.stdout + ended.stderr).strip()[-300:]
        return (KILLED, failed[1]) if failed else (SURVIVED, "")


@contextmanager
def copies(number: int, server: str) -> Iterator[SimpleQueue[Copy]]:
    """Copies that are not in use; `server` is the address of a PostgreSQL server, where there is one."""
    idle: SimpleQueue[Copy] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="spillway-proof-") as folder:
        for each in range(number):
            root = Path(shutil.copytree(ROOT, Path(folder) / str(each), ignore=LEFT_OUT))
            (root / ".venv").symlink_to(ROOT / ".venv")
            idle.put(Copy(root, server and f"{server.rpartition('/')[0]}/proof_{os.getpid()}_{each}"))
        yield idle


def run(guards: Collection[Guard], server: str, jobs: int) -> Iterator[Verdict]:
    """A verdict for each, as they come. First all tests with every guard in place: one that fails then says nothing."""
    with copies(jobs, server) as idle, ThreadPoolExecutor(jobs) as pool:

        def sound(tests: str, needs_server: bool) -> tuple[str, str]:
            copy = idle.get()
            try:
                return copy.tests(tests, needs_server)
            finally:
                idle.put(copy)

        def one(guard: Guard) -> Verdict:
            copy = idle.get()
            try:
                return copy.without(guard)
            finally:
                idle.put(copy)

        for needs_server in {guard.server for guard in guards}:
            names = {name for guard in guards if guard.server == needs_server for name in guard.tests.split()}
            verdict, by = sound(" ".join(sorted(names)), needs_server)
            if verdict != SURVIVED:
                raise SystemExit(f"with every guard in place a test fails: {by}")
        yield from pool.map(one, guards)
