"""The drill about Cassandra: of three nodes one is killed under load, then a second; the tests of the store run meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from config.environment.databases import parse_cassandra_url
from tests.drills.stage import Drill, Plan
from tests.processes.ring import Ring
from tests.tree import ROOT

Say = Callable[[str], None]
KEYSPACE = "spillway_drill"
# Those that shut the way to the one node there is, the one that kills a node of its own, and the one for which `doctor`
# has nothing to complain of, are about one node.
SUITE = "cassandra and not (is_away or that_goes or killed_node or the_command_makes)"
AT_ONCE = 20  # rows a call


class CassandraNodeDown(Drill):
    """Three copies at LOCAL_QUORUM: one node down changes nothing, two stop everything, and a repair makes all copies again."""

    watched = False
    own_nodes = True
    staged = "of three nodes of Cassandra the first, then the second is killed while rows are stored"

    def run(self, plan: Plan, say: Say) -> bool:
        with tempfile.TemporaryDirectory(prefix="spillway-cassandra-") as name:
            folder = Path(name)
            os.environ |= {"DJANGO_SETTINGS_MODULE": "config.settings", "SECRET_KEY": "not-a-secret" * 5,
                           "DATABASE_URL": f"sqlite:///{folder / 'tests.sqlite3'}"}  # fmt: skip
            import django

            django.setup()
            with Ring(folder) as ring:
                say("three nodes are up")
                return play(ring, say)


def play(ring: Ring, say: Say) -> bool:
    from throttler.overflow.cassandra import CassandraStore

    place = parse_cassandra_url(f"{ring.address}/{KEYSPACE}?replication=3")
    with closing(CassandraStore(place, days=3)) as store:
        store.create()
        say(f"keyspace with {place.replication} copies, {place.consistency}; doctor: {told(store)}")
        with storing(store) as load:
            load.wait(2000)
            ring.kill(1)
            say("node 1, the first of CASSANDRA_URL, is killed with SIGKILL")
            load.wait(6000)
        say(f"{load.stored} rows stored, {load.refused} calls refused, at most {load.pause:.2f} s between two; "
            f"doctor: {told(store)}")  # fmt: skip
        with closing(CassandraStore(place, days=3)) as fresh:
            began = time.monotonic()
            fresh.store([])
            complete = everything(fresh) == load.stored
            say(f"a new process connects and reads all of them in {time.monotonic() - began:.1f} s: {complete}")
        passed = suite(ring.address, say)
        with storing(store, load.stored) as load:
            load.wait(500)
            ring.kill(2)
            say("node 2 is killed, too")
            load.wait_for_refusal()
            say(f"refused, to be tried again: {load.error[:150]}")
            ring.start(1, 2)
            back = time.monotonic()
            load.wait(500)
            say(f"both are back; rows are stored again {time.monotonic() - back:.1f} s later")
        for number in (1, 2, 3):
            ring.nodetool(number, "repair", "-full", "-pr", KEYSPACE)
        say(f"$ nodetool repair -full -pr {KEYSPACE}, on each node in turn")
        ring.kill(3)
        repaired = everything(store) == load.stored
        say(f"node 3, the only one that was never down, is killed: the others have all {load.stored} rows: {repaired}")
    return complete and passed and repaired


def told(store: Any) -> str:
    return "; ".join(f"{'ok' if well else 'FAIL'} {detail}" for _name, well, detail in store.diagnose())


def everything(store: Any) -> int:
    """How many rows there are."""
    from tests.throttler.overflow.conftest import lane

    return int(store.count(lane()))


def suite(address: str, say: Say) -> bool:
    """The tests of the store, on the nodes that are left."""
    environment = {**os.environ, "TEST_CASSANDRA_URL": address, "START_SERVICES": "0"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/throttler/overflow", "-k", SUITE]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    say(f"$ TEST_CASSANDRA_URL={address} pytest tests/throttler/overflow: {done.stdout.strip().splitlines()[-1]}")
    if done.returncode:
        print(done.stdout[-5000:], file=sys.stderr)
    return not done.returncode


class Load(threading.Thread):
    """Stores rows of one lane, a call after the other, and what is refused again."""

    def __init__(self, store: Any, first: int) -> None:
        super().__init__(daemon=True)
        self.store, self.stored = store, first
        self.refused, self.pause, self.error = 0, 0.0, ""
        self.ended = threading.Event()

    def run(self) -> None:
        from django.db import OperationalError

        from tests.throttler.overflow.conftest import row

        last = time.monotonic()
        while not self.ended.is_set():
            try:
                self.store.store([row(offset) for offset in range(self.stored, self.stored + AT_ONCE)])
            except OperationalError as error:
                self.refused, self.error = self.refused + 1, str(error)
                time.sleep(0.1)
                continue
            self.stored += AT_ONCE
            self.pause, last = max(self.pause, time.monotonic() - last), time.monotonic()

    def wait(self, more: int) -> None:
        """Until so many more are stored."""
        target, until = self.stored + more, time.monotonic() + 120
        while self.stored < target:
            assert self.is_alive(), "the load has ended"
            assert time.monotonic() < until, f"stored {self.stored}, not {target}: {self.error}"
            time.sleep(0.05)

    def wait_for_refusal(self) -> None:
        before, until = self.refused, time.monotonic() + 60
        while self.refused == before:
            assert time.monotonic() < until, "nothing was refused"
            time.sleep(0.05)


@contextmanager
def storing(store: Any, first: int = 0) -> Iterator[Load]:
    load = Load(store, first)
    load.start()
    try:
        yield load
    finally:
        load.ended.set()
        load.join(60)
