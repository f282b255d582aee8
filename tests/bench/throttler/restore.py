"""A hundred thousand lanes read back from a changelog of a million updates, beside a client in C that only reads it."""

from __future__ import annotations

import itertools
import time
from contextlib import closing

from tests.bench.events import PARTITIONS, flush, new_producer, send
from tests.bench.throttler.notifications import CHANGELOG, INPUT, Topics, customers, fresh, records
from throttler.lanes.restore import RestoredPartition
from throttler.lanes.restore_thread import RestoreThread
from throttler.lanes.state import PARTITION_KEY, LaneState, PartitionRecord, lane_bytes, partition_bytes
from throttler.limits.limiter import LimiterState

LIMIT = 300.0


def measure(servers: str, lanes: int, updates: int, repeat: int) -> dict[str, list[float]]:
    """Seconds of each run: `restored`, `processor time` of it, and `read` by the other client."""
    found: dict[str, list[float]] = {"restored": [], "processor": [], "read": []}
    with fresh(servers) as topics:
        log(topics, lanes, updates)
        for _ in range(repeat):
            began = time.perf_counter()
            read = sum(1 for _record in records(topics, CHANGELOG))
            found["read"].append(time.perf_counter() - began)
            wall, processor = restored(topics, lanes)
            found["restored"].append(wall)
            found["processor"].append(processor)
        print(f"    restore: {read} records in the changelog", flush=True)
    return found


def log(topics: Topics, lanes: int, updates: int) -> None:
    """The lanes in turns, as their owners log them; then each partition's own record."""
    producer = new_producer(topics.servers)
    name, now = topics.name(CHANGELOG), 1_790_000_000_000_000
    for number, (customer, partition) in zip(range(updates), itertools.cycle(customers(lanes)), strict=False):
        lane = LaneState(customer)
        lane.seen, lane.limiter = number, LimiterState(now + number)
        send(producer, name, lane_bytes(lane, 1, ""), customer.encode(), partition)
    for partition in range(PARTITIONS):
        send(producer, name, partition_bytes(PartitionRecord("", 0, 0, {"read": 0})), PARTITION_KEY, partition)
    flush(producer)


def restored(topics: Topics, lanes: int) -> tuple[float, float]:
    """`(seconds, seconds of processor time)` until all partitions are there, connecting included."""
    began, worked = time.perf_counter(), time.process_time()
    with closing(RestoreThread(topics.name(INPUT), topics.name(CHANGELOG), topics.name("throttler"))) as restoring:
        restoring.ask(set(range(PARTITIONS)))
        parts: list[RestoredPartition] = []
        while len(parts) < PARTITIONS and time.perf_counter() - began < LIMIT:
            for result in restoring.ready().values():
                if not isinstance(result, RestoredPartition):
                    raise RuntimeError(result.alarm)
                parts.append(result)
            time.sleep(0.005)
        taken = time.perf_counter() - began, time.process_time() - worked
    if sum(len(part.lanes) for part in parts) != lanes:
        raise RuntimeError(f"{sum(len(part.lanes) for part in parts)} of {lanes} lanes were restored")
    return taken
