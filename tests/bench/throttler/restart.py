"""A named throttler killed and started again beside another one: how long nobody is sent anything, and whom it stops."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count, pairwise
from os import environ
from pathlib import Path

from confluent_kafka.admin import NewPartitions

from config.kafka.wire_format import partition_of
from tests.bench import databases
from tests.bench.events import PARTITIONS, administrator
from tests.bench.throttler.notifications import INPUT, OUTPUT, Source, Topics, customers, fill, fresh, records
from tests.bench.worker import ROOT
from tests.crash.wire import wait_for

NAMES = ("left", "right")
EACH = 100  # messages a second of each partition that are watched
QUIET = "1/hour"  # of the lanes that have to be kept: one message, and the rate has not recovered
WATCHED = "1000/s"
CREATED = {"created_at": datetime.now(UTC), "updated_at": datetime.now(UTC)}
LIMIT = 90.0  # seconds to wait for anything


@dataclass
class Outcome:
    """Of one restart, in seconds."""

    first: float  # from "throttler_starts" until each partition has sent again
    from_start: float  # from the start of the process
    others: float  # the longest that a partition of the other process sent nothing meanwhile
    alarm: float  # from the moment a partition is added until both have stopped


@dataclass
class Throttler:
    """A process with a log that can be read."""

    name: str
    log: Path
    environment: dict[str, str]

    def __post_init__(self) -> None:
        command = [sys.executable, str(ROOT / "manage.py"), "run_throttler", "--instance", self.name]
        more = {**environ, **self.environment, "LOG_LEVEL": "INFO", "LOG_FORMAT": "json"}
        self.started = time.time()
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(command, cwd=ROOT, env=more, stdout=output, stderr=output)

    def began(self) -> float:
        """When it said the last time that it starts, in seconds since 1970."""
        said = [json.loads(line) for line in self.log.read_text().splitlines() if '"throttler_starts"' in line]
        return datetime.fromisoformat(said[-1]["timestamp"]).timestamp()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Let it leave the group, which otherwise keeps its name for the length of a session."""
        self.process.terminate()
        self.process.wait(LIMIT)


def measure(servers: str, lanes: int) -> Outcome:
    with fresh(servers) as topics, tempfile.TemporaryDirectory() as directory, steady(topics) as watched:
        more = {**topics.environment, "THROTTLER_DEFAULT_RATE": QUIET}
        running = {name: Throttler(name, Path(directory) / name, more) for name in NAMES}
        try:
            fill(topics, customers(lanes), lanes)
            wait_for(lambda: sum(1 for _ in records(topics, OUTPUT)) >= lanes, LIMIT, "every lane's first message", 1.0)
            owned = wait_for(both_owners, LIMIT, "both to have partitions", 0.2)
            killed_at = time.time()
            running["left"].kill()
            again = running["left"] = Throttler("left", running["left"].log, more)
            left = owned["left"]
            times = wait_for(lambda: sent_again(topics, watched, left, again.started), LIMIT, "messages again", 0.2)
            others = [at for number in owned["right"] for at in gaps(times[number], killed_at)]
            first = max(min(at for at in times[number] if at > again.started) for number in left)
            alarm = stopped_by_partitions(topics, list(running.values()))
            return Outcome(first - again.began(), first - again.started, max(others), alarm)
        finally:
            for one in running.values():
                one.stop()


@contextmanager
def steady(topics: Topics) -> Iterator[set[bytes]]:
    """Messages of one customer a partition all the while; their names."""
    from throttler.models import Customer

    wide = watched()
    Customer.objects.bulk_create(Customer(customer_id=name, rates=WATCHED, **CREATED) for name, _number in wide)
    ending = threading.Event()

    def send() -> None:
        source = Source(topics, **{"linger.ms": 0})
        for index in count():
            source.send(*wide[index % len(wide)], index)
            if ending.wait(1 / EACH / PARTITIONS):
                break
        source.flush()

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield {name.encode() for name, _ in wide}
    finally:
        ending.set()
        thread.join()


def watched() -> list[tuple[str, int]]:
    """One customer of each partition."""
    names = (f"watched-{number}" for number in count())
    found: dict[int, str] = {}
    while len(found) < PARTITIONS:
        name = next(names)
        found.setdefault(partition_of(name.encode(), PARTITIONS), name)
    return [(name, number) for number, name in found.items()]


def both_owners() -> dict[str, list[int]]:
    found = owners()
    return found if len(found) == len(NAMES) else {}


def owners() -> dict[str, list[int]]:
    """Partitions of each process, from the mirror."""
    found: dict[str, list[int]] = {}
    for name, partitions in databases.rows("SELECT name, partitions FROM throttler_laneowner"):
        found[name] = json.loads(partitions) if isinstance(partitions, str) else partitions
    return {name: numbers for name, numbers in found.items() if numbers}


def sent_again(topics: Topics, watched: set[bytes], numbers: list[int], since: float) -> dict[int, list[float]]:
    """Times of what left, by partition; nothing before each of `numbers` has sent since then."""
    times: dict[int, list[float]] = defaultdict(list)
    for found in records(topics, OUTPUT):
        if found.key() in watched:
            times[found.partition()].append(found.timestamp()[1] / 1000)
    later = time.time() - since > 3 and all(times[number] and times[number][-1] > since for number in numbers)
    return times if later else {}


def gaps(times: list[float], since: float) -> list[float]:
    return [after - before for before, after in pairwise(sorted(times)) if after > since]


def stopped_by_partitions(topics: Topics, running: list[Throttler]) -> float:
    began = time.monotonic()
    wanted = NewPartitions(topics.name(INPUT), PARTITIONS + 1)
    admin = administrator(topics.servers)  # kept: with it the answer is gone
    for future in admin.create_partitions([wanted]).values():
        future.result(30)
    wait_for(lambda: all(one.process.poll() is not None for one in running), LIMIT, "both to stop", 0.2)
    return time.monotonic() - began
