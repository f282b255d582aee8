"""The overflow store in Cassandra: a batch per lane and day, a query per lane and day, nothing ever deleted."""

from __future__ import annotations

import ssl
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.concurrent import execute_concurrent, execute_concurrent_with_args
from cassandra.policies import DCAwareRoundRobinPolicy, RoundRobinPolicy, TokenAwarePolicy
from cassandra.query import BatchStatement, BatchType

from throttler.overflow.cassandra_url import CassandraPlace
from throttler.overflow.store import LaneRange, LaneRows, OverflowRow, OverflowStore, each_offset_once

AT_ONCE = 100  # requests under way
BATCH_BYTES = 1_000_000  # a node takes 16 MiB
SECONDS = 8.0  # for one request
DAY = timedelta(days=1)

COLUMNS = "customer_id, day, partition, topic_id, offset, payload, headers, created_us, expires_us, notification_id"
TABLE = """CREATE TABLE IF NOT EXISTS {keyspace}.overflow_message (
    customer_id text, day date, partition int, topic_id text, offset bigint,
    payload blob, headers blob, created_us bigint, expires_us bigint, notification_id text,
    PRIMARY KEY ((customer_id, day, partition), topic_id, offset)
) WITH default_time_to_live = {seconds} AND gc_grace_seconds = 3600
AND compaction = {{'class': 'TimeWindowCompactionStrategy',
    'compaction_window_unit': 'DAYS', 'compaction_window_size': 1}}"""
LANE = (
    "FROM {keyspace}.overflow_message WHERE customer_id = ? AND day = ? AND partition = ? "
    "AND topic_id = ? AND offset > ? AND offset <= ?"
)


class CassandraStore(OverflowStore):
    """Rows live `days`. Connects with the first request; errors are the driver's."""

    def __init__(self, place: CassandraPlace, days: int) -> None:
        self.place = place
        self.days = days

    def ensure(self) -> list[str]:
        return [self._keyspace(), TABLE.format(keyspace=self.place.keyspace, seconds=self.days * 86_400)]

    def create(self) -> None:
        """Run what `ensure` lists."""
        for statement in self.ensure():
            self.session.execute(statement)

    def store(self, rows: Sequence[OverflowRow]) -> None:
        """Whole or not tells an error; what was stored before it is stored again without harm."""
        if rows:
            execute_concurrent(self.session, [(batch, None) for batch in self._batches(rows)], AT_ONCE)

    def read(self, ranges: Sequence[LaneRange]) -> LaneRows:
        wanted = [(lane, day) for lane in ranges for day in days_of(lane)]
        found: dict[tuple[int, str], list[OverflowRow]] = {(lane.partition, lane.customer_id): [] for lane in ranges}
        asked = [(*bounds_of(lane, day), lane.limit) for lane, day in wanted]
        for (lane, _day), rows in zip(wanted, self._ask(self._select, asked), strict=True):
            found[lane.partition, lane.customer_id].extend(_row(*row) for row in rows)
        # Each day gave its first rows: the first of all are among them.
        limits = {(lane.partition, lane.customer_id): lane.limit for lane in ranges}
        return {key: each_offset_once(rows)[: limits[key]] for key, rows in found.items()}

    def count(self, lane: LaneRange) -> int:
        asked = [bounds_of(lane, day) for day in days_of(lane)]
        return len({row[0] for rows in self._ask(self._offsets, asked) for row in rows})

    def oldest_day(self) -> date | None:
        """Every day can be stored under: rows leave by their own age."""
        return None

    def close(self) -> None:
        if "_cluster" in self.__dict__:
            self._cluster.shutdown()

    @cached_property
    def session(self) -> Any:
        return self._cluster.connect()

    @cached_property
    def _cluster(self) -> Any:
        place = self.place
        near = DCAwareRoundRobinPolicy(place.datacenter) if place.datacenter else RoundRobinPolicy()
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(near),
            consistency_level=self._level,
            request_timeout=SECONDS,
            row_factory=lambda _names, rows: rows,
        )
        return Cluster(
            list(place.hosts),
            place.port,
            auth_provider=PlainTextAuthProvider(place.user, place.password) if place.user else None,
            ssl_context=ssl.create_default_context(cafile=place.cafile) if place.cafile else None,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            protocol_version=5,
        )

    @property
    def _level(self) -> int:
        return int(ConsistencyLevel.name_to_value[self.place.consistency])

    @cached_property
    def _insert(self) -> Any:
        holders = ", ".join("?" * len(COLUMNS.split()))
        return self._prepared(f"INSERT INTO {{keyspace}}.overflow_message ({COLUMNS}) VALUES ({holders})")  # noqa: S608

    @cached_property
    def _select(self) -> Any:
        return self._prepared(f"SELECT {COLUMNS} {LANE} LIMIT ?")

    @cached_property
    def _offsets(self) -> Any:
        return self._prepared(f"SELECT offset {LANE}")

    def _prepared(self, cql: str) -> Any:
        return self.session.prepare(cql.format(keyspace=self.place.keyspace))

    def _ask(self, prepared: Any, asked: Sequence[Sequence[Any]]) -> Iterator[Iterable[Any]]:
        """The rows of each, in the order asked."""
        results = execute_concurrent_with_args(self.session, prepared, asked, AT_ONCE) if asked else []
        for _success, rows in results:
            yield rows

    def _batches(self, rows: Sequence[OverflowRow]) -> Iterator[Any]:
        """One or more for each lane and day: all rows of a batch are in one partition, so that it needs no log."""
        lanes: dict[tuple[int, str, date], list[OverflowRow]] = defaultdict(list)
        for row in rows:
            lanes[row.partition, row.customer_id, row.day].append(row)
        for together in lanes.values():
            batch, size = self._batch(), 0
            for row in together:
                if size and size + len(row.payload) + len(row.headers) > BATCH_BYTES:
                    yield batch
                    batch, size = self._batch(), 0
                batch.add(self._insert, _values(row))
                size += len(row.payload) + len(row.headers)
            yield batch

    def _batch(self) -> Any:
        return BatchStatement(BatchType.UNLOGGED, consistency_level=self._level)

    def _keyspace(self) -> str:
        place = self.place
        kind = (
            f"'NetworkTopologyStrategy', '{place.datacenter}': {place.replication}"
            if place.datacenter
            else f"'SimpleStrategy', 'replication_factor': {place.replication}"
        )
        return f"CREATE KEYSPACE IF NOT EXISTS {place.keyspace} WITH replication = {{'class': {kind}}}"


def days_of(lane: LaneRange) -> list[date]:
    """From the lane's day to tomorrow, by the clock of whoever stored it."""
    last = max(datetime.now(UTC).date() + DAY, lane.day)
    return [lane.day + DAY * number for number in range((last - lane.day).days + 1)]


def bounds_of(lane: LaneRange, day: date) -> tuple[Any, ...]:
    return lane.customer_id, day, lane.partition, lane.topic_id, lane.drained, lane.upto


def _values(row: OverflowRow) -> tuple[Any, ...]:
    return (
        row.customer_id,
        row.day,
        row.partition,
        row.topic_id,
        row.offset,
        row.payload,
        row.headers,
        row.created_us,
        row.expires_us,
        row.notification_id,
    )


def _row(
    customer_id: str, day: Any, partition: int, topic_id: str, offset: int, payload: bytes, headers: bytes, *more: Any
) -> OverflowRow:
    return OverflowRow(partition, customer_id, topic_id, offset, day.date(), payload, headers, *more)
