"""python -m tests.crash.throttler.quiet: the database is away under load, and quiet customers must not notice."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from config.kafka.wire_format import partition_of
from tests.bench.events import PARTITIONS
from tests.bench.figures import at
from tests.bench.throttler.delay import Listener, listening, source_of
from tests.bench.throttler.notifications import Source, Topics, records
from tests.bench.worker import megabytes
from tests.crash import databases
from tests.crash.oracle import Finding
from tests.crash.platform import Platform, Worker
from tests.crash.run import everything_adds_up, letters_of, staged
from tests.crash.throttler.run import throttler_wire
from tests.crash.throttler.topics import INPUT, OUTPUT, READ_BY_VERIFY, ThrottlerWire
from tests.crash.wire import wait_for
from tests.processes.proxy import Gate

QUIET, LOUD = 500, 10  # customers who stay under their rate of 10/s, and who do not
RATE, SHARES, QUIET_SHARES = 700, 7, 4  # messages a second of all; of 7 messages 4 are of quiet customers
POISON = 50  # one record in so many is none
WARM, PATIENCE = 10, 300  # seconds
TIMES = 1.5  # what quiet customers' p99 may grow by


class Load(threading.Thread):
    """Sends quiet and loud customers' messages, and poison, until it is told to stop."""

    def __init__(self, topics: Topics) -> None:
        super().__init__(name="load", daemon=True)
        self.source, self.ending = Source(topics, **{"linger.ms": 0}), threading.Event()
        self.sent = self.poisoned = 0
        self.quiet = itertools.cycle([f"quiet-{number}" for number in range(QUIET)])
        self.loud = itertools.cycle([f"loud-{number}" for number in range(LOUD)])

    def run(self) -> None:
        began = time.monotonic()
        for number in itertools.count():
            time.sleep(max(0.0, began + number / RATE - time.monotonic()))
            if self.ending.is_set():
                break
            self._send(number, next(self.quiet if number % SHARES < QUIET_SHARES else self.loud))
        self.source.flush()

    def _send(self, number: int, name: str) -> None:
        partition = partition_of(name.encode(), PARTITIONS)
        if number % POISON == 0:
            self.poisoned += 1
            self.source.producer.produce(self.source.topic, b"{bad", b"poison", partition)
        else:
            self.sent += 1
            self.source.send(name, partition, number)

    def finish(self) -> None:
        self.ending.set()
        self.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=("django", "cassandra"), default="django")
    parser.add_argument("--database", metavar="URL", required=True)
    parser.add_argument("--seconds", type=int, default=120, help="that the database is away (120), half of it before")
    arguments = parser.parse_args()
    with ExitStack() as ends:
        store = ends.enter_context(databases.fresh_keyspace()) if arguments.store == "cassandra" else {}
        wire = ends.enter_context(throttler_wire("quiet", databases.kafka_servers(), None))
        environment = {**wire.environment, "LOG_LEVEL": "WARNING", **store}
        platform = ends.enter_context(staged(arguments.database, None, environment))
        platform.manage("create_topics", *READ_BY_VERIFY)
        platform.manage("create_overflow_store")
        gate = ends.enter_context(closing(Gate(platform.environment["DATABASE_URL"])))
        return run(platform, wire, gate, arguments.seconds)


def run(platform: Platform, wire: ThrottlerWire, gate: Gate, seconds: int) -> int:
    """Half as long before, the outage, a quarter as long after; then the backlog leaves at once."""
    topics = Topics(databases.kafka_servers(), wire.prefix)
    worker = platform.start("run_throttler", "--instance", "a", DATABASE_URL=gate.url)
    with listening(topics) as listener:
        load = Load(topics)
        load.start()
        wait_for(lambda: listener.arrived, 60, "the first message")
        time.sleep(WARM)
        marks = [time.time() * 1000]
        for away, span in ((False, seconds / 2), (True, seconds), (False, seconds / 4)):
            (gate.shut if away else gate.reopen)()
            time.sleep(span)
            marks.append(time.time() * 1000)
            told = f"{len(listener.arrived)} of {load.sent} have left, peak {megabytes(worker.process.pid):.0f} MB"
            print(f"      {'away' if away else 'there'}: {told}, load {os.getloadavg()[0]:.1f}", flush=True)
        load.finish()
        for number in range(LOUD):
            platform.manage("customers", "set-rate", f"loud-{number}", "1000/s", "--reason", "the end")
        wait_for(lambda: len(listener.arrived) >= load.sent, PATIENCE, "everything to leave", pause=0.5)
        time.sleep(3)  # what comes twice, and the mirror
    findings = list(judge(Evidence(topics, listener, load.sent, load.poisoned, marks), platform, worker))
    print(*findings, sep="\n")
    return int(not all(finding.ok for finding in findings))


@dataclass
class Evidence:
    """What was sent, what left and when; `marks` part the time before, the outage, and after, in milliseconds."""

    topics: Topics
    listener: Listener
    sent: int
    poisoned: int
    marks: list[float]

    def __post_init__(self) -> None:
        self.came = {source_of(one): (one.key(), one.timestamp()[1]) for one in records(self.topics, INPUT)}
        left = sorted(records(self.topics, OUTPUT), key=lambda one: (one.partition(), one.offset()))
        self.left = [source_of(one) for one in left]

    def delays(self, kind: bytes, phase: int) -> list[float]:
        """Of the messages that came in that phase, sorted."""
        begin, end = self.marks[phase : phase + 2]
        came = ((self.listener.arrived.get(place), *told) for place, told in self.came.items())
        return sorted(at - sent for at, key, sent in came if at and key.startswith(kind) and begin < sent < end)

    def left_in(self, kind: bytes, phase: int) -> int:
        begin, end = self.marks[phase : phase + 2]
        return sum(
            begin < at < end and self.came[place][0].startswith(kind) for place, at in self.listener.arrived.items()
        )


def judge(seen: Evidence, platform: Platform, worker: Worker) -> Iterator[Finding]:
    distinct = len({*seen.left})
    wrong = [] if len(seen.left) == seen.sent == distinct else [len(seen.left)]
    yield Finding("every message leaves exactly once", f"{seen.sent} sent, {distinct} left", wrong)
    yield Finding("each customer's messages leave in their order", "", list(out_of_order(seen)))
    yield unnoticed(seen)
    figures = ", ".join(str(seen.left_in(b"loud", phase)) for phase in range(3))
    yield Finding("loud customers' messages that left before, meanwhile, after", figures)
    letters = len(letters_of(platform))
    yield Finding("each poison record is a letter", str(letters), [seen.poisoned] * (letters != seen.poisoned))
    codes, took = {worker.name: worker.stop()}, (seen.marks[-1] - seen.marks[0]) / 1000
    verify = platform.manage("verify", "--kafka", "--json", check=False)
    yield from everything_adds_up(verify, codes, "", took)


def out_of_order(seen: Evidence) -> Iterator[Any]:
    last: dict[bytes, tuple[int, int]] = {}
    for place in seen.left:
        key = seen.came[place][0]
        if last.get(key, (-1, -1)) >= place:
            yield key, last[key], place
        last[key] = place


def unnoticed(seen: Evidence) -> Finding:
    before, away = (seen.delays(b"quiet", phase) for phase in range(2))
    times = at(away, 0.99) / at(before, 0.99)
    told = [f"p50 {at(found, 0.5):.0f} ms, p99 {at(found, 0.99):.0f} ms" for found in (before, away)]
    text = f"before {told[0]}; away {told[1]}: {times:.2f} times"
    return Finding("quiet customers do not notice", text, [times] * (times > TIMES))


if __name__ == "__main__":
    sys.exit(main())
