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

from tests.crash import databases
from tests.proof.guard import Guard
from tests.tree import ROOT

KILLED, SURVIVED, HUNG, BROKEN = "killed", "SURVIVED", "hung", "BROKEN"
LIMIT = 300.0  # seconds for the tests of a guard: who waits for longer has noticed that it is gone, too
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

    def tests(self, names: str, server: bool, limit: float = LIMIT) -> tuple[str, str]:
        """Killed, survived, hung or broken, and the first test that failed."""
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        environment["DATABASE_URL"] = self.url if server else f"sqlite:///{self.root}/spillway.sqlite3"
        command = [sys.executable, *PYTEST, *names.split()]
        try:
            ended = subprocess.run(
                command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=limit
            )
        except subprocess.TimeoutExpired:
            return HUNG, f"behind {limit} s"
        failed = FAILED.search(ended.stdout)
        if ended.returncode in NO_SUCH_TEST or (ended.returncode and not failed):
            return BROKEN, (ended.stdout + ended.stderr).strip()[-300:]
        return (KILLED, failed[1]) if failed else (SURVIVED, "")


class Copies:
    """Copies of the tree for as many guards at a time; `server` is the address of a PostgreSQL server, or empty."""

    def __init__(self, folder: Path, number: int, server: str) -> None:
        self.idle: SimpleQueue[Copy] = SimpleQueue()
        self.server, self.names = server, [f"proof_{os.getpid()}_{each}" for each in range(number)]
        for name in self.names:
            root = Path(shutil.copytree(ROOT, folder / name, ignore=LEFT_OUT))
            (root / ".venv").symlink_to(ROOT / ".venv")
            self.idle.put(Copy(root, server and f"{server.rpartition('/')[0]}/{name}"))

    @contextmanager
    def one(self) -> Iterator[Copy]:
        """One that nobody else uses."""
        copy = self.idle.get()
        try:
            yield copy
        finally:
            self.idle.put(copy)

    def drop_databases(self) -> None:
        """`--reuse-db` leaves them."""
        for name in self.names if self.server else ():
            databases.drop(self.server, f"DROP DATABASE IF EXISTS test_{name} WITH (FORCE)")


def run(guards: Collection[Guard], server: str, jobs: int) -> Iterator[Verdict]:
    """A verdict for each, as they come. First all tests with every guard in place: one that fails then says nothing."""
    with tempfile.TemporaryDirectory(prefix="spillway-proof-") as folder, ThreadPoolExecutor(jobs) as pool:
        copies = Copies(Path(folder), jobs, server)

        def without(guard: Guard) -> Verdict:
            with copies.one() as copy:
                return copy.without(guard)

        try:
            for needs_server in {guard.server for guard in guards}:
                names = {name for guard in guards if guard.server == needs_server for name in guard.tests.split()}
                with copies.one() as copy:
                    verdict, by = copy.tests(" ".join(sorted(names)), needs_server, limit=len(guards) * LIMIT)
                if verdict != SURVIVED:
                    raise SystemExit(f"with every guard in place a test fails: {by}")
            yield from pool.map(without, guards)
        finally:
            copies.drop_databases()
