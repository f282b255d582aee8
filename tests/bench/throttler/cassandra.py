"""python -m tests.bench.throttler.cassandra: the overflow store in Cassandra, on the node that TEST_CASSANDRA_URL names."""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count

from config.environment.databases import parse_cassandra_url
from tests.bench.figures import machine, median
from throttler.overflow.cassandra import CassandraStore
from throttler.overflow.store import LAST_OFFSET, LaneRange, OverflowRow

ROWS = 2000
PAGES = 100  # lanes that the worker asks for together
RUNS = 9
TODAY = datetime.now(UTC).date()
TOPIC = "11111111-2222-3333-4444-555555555555"
PAYLOAD = b"x" * 500
OFFSETS = count()


def rows(lanes: int, number: int = ROWS, name: str = "c") -> list[OverflowRow]:
    """So many over these lanes in turn, none of them known."""
    return [
        OverflowRow(0, f"{name}{offset % lanes}", TOPIC, offset, TODAY, PAYLOAD, b"", offset, 0, f"n-{offset}")
        for offset, _ in zip(OFFSETS, range(number), strict=False)
    ]


def lane(customer: str, limit: int, drained: int = -1) -> LaneRange:
    return LaneRange(0, customer, TOPIC, drained, LAST_OFFSET, TODAY - timedelta(days=1), limit)


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def stored(store: CassandraStore, lanes: int) -> list[float]:
    """Rows a second, of calls with 2 000."""
    return [ROWS / seconds(lambda: store.store(rows(lanes))) for _ in range(RUNS)]


def one_by_one(store: CassandraStore) -> float:
    return 500 / seconds(lambda: [store.store([row]) for row in rows(700, 500)])


def read(store: CassandraStore, lanes: Sequence[LaneRange]) -> None:
    for start in range(0, len(lanes), PAGES):
        store.read(lanes[start : start + PAGES])


def main() -> None:
    place = parse_cassandra_url(f"{os.environ['TEST_CASSANDRA_URL']}/spillway_bench_{os.getpid()}?replication=1")
    store = CassandraStore(place, days=3)
    store.create()
    try:
        measure(store)
    finally:
        store.session.execute(f"DROP KEYSPACE {place.keyspace}")
        store.close()
    print(machine(["Cassandra 5.0.4"]))


def measure(store: CassandraStore) -> None:
    stored(store, 700)  # the virtual machine warms up
    print(f"one row a call: {one_by_one(store):,.0f} rows/s")
    for lanes in (700, 40, 1):
        print(f"{ROWS} rows over {lanes} lanes: {median(stored(store, lanes))} rows/s")
    store.store(rows(1000, 10_000, "d"))
    many = [lane(f"d{number}", 10) for number in range(1000)]
    print(f"1 000 lanes × 10 rows: {median([seconds(lambda: read(store, many)) for _ in range(RUNS)])} s")
    hundred = many[:PAGES]
    print(f"100 lanes × 10 rows: {median([1000 * seconds(lambda: read(store, hundred)) for _ in range(RUNS)])} ms")
    for number in (10_000, 240_000):
        for _ in range(number // ROWS):
            store.store(rows(1, name="long"))
        pages(store, number)


def pages(store: CassandraStore, number: int) -> None:
    """Of 200, from the first offset and from one in the middle."""
    first = store.read([lane("long0", 1)])[0, "long0"][0].offset
    for name, drained in (("first", first - 1), ("middle", first + number // 2)):
        taken = [1000 * seconds(lambda: store.read([lane("long0", 200, drained)])) for _ in range(51)]
        print(f"page of 200, {name}, {number:,} rows more: {statistics.median(taken):.1f} ms, at most {max(taken):.1f}")


if __name__ == "__main__":
    main()
