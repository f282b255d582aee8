"""The overflow store in Cassandra: a batch per lane and day, a query per lane, nothing ever deleted."""

from __future__ import annotations

import ssl
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from operator import attrgetter
from typing import Any

from cassandra import ConsistencyLevel, DriverException, InvalidRequest
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.concurrent import execute_concurrent, execute_concurrent_with_args
from cassandra.connection import ConnectionBusy, ConnectionException
from cassandra.policies import ConstantReconnectionPolicy, DCAwareRoundRobinPolicy, RoundRobinPolicy, TokenAwarePolicy
from cassandra.query import BatchStatement, BatchType, PreparedStatement
from cassandra.util import Date
from django.db import DatabaseError, DataError, OperationalError, ProgrammingError

from config.environment.databases import CassandraPlace
from throttler.overflow.cassandra_schema import COLUMNS, OverflowSchema, condition, faults_of
from throttler.overflow.store import LaneRange, LaneRows, OverflowRow, OverflowStore, each_offset_once

AT_ONCE = 100  # requests under way
BATCH_BYTES = 1_000_000  # a node takes 16 MiB
SECONDS = 8.0  # for one request
RETRY_SECONDS = 1.0  # between two tries to reach a node; the driver's own grow to ten minutes
DAY = timedelta(days=1)
NOBODY = LaneRange(0, "", "", -1, 0, date.max - 2 * DAY, 1)
MISSING = ("unconfigured table", "does not exist", "Undefined column")
AWAY = (DriverException, NoHostAvailable, ConnectionException, ConnectionBusy, OSError)


class CassandraStore(OverflowStore):
    """Rows live `days`. Connects with the first request, from any thread.

    Errors are Django's, as the relational store's are: OperationalError while it cannot be reached, ProgrammingError
    while the table is missing, DataError for a row that it refuses.
    """

    in_database = False

    def __init__(self, place: CassandraPlace, days: int) -> None:
        self.place = place
        self.schema = OverflowSchema(place, days)
        self._connecting = threading.Lock()
        self._session: Session | None = None
        self._known: dict[str, PreparedStatement] = {}

    def ensure(self) -> list[str]:
        return self.schema.statements()

    def create(self) -> None:
        """Run what `ensure` lists; who may not make keyspaces can use one that is there."""
        with django_errors(self.place):
            known = self.session.cluster.metadata.keyspaces
            for statement in self.ensure()[self.place.keyspace in known :]:
                self.session.execute(statement)

    def store(self, rows: Sequence[OverflowRow]) -> None:
        """Whole or not tells an error; what was stored before it is stored again without harm."""
        with django_errors(self.place):
            batches = [(batch, None) for batch in self._batches(rows)]
            if batches:
                execute_concurrent(self.session, batches, AT_ONCE)

    def read(self, ranges: Sequence[LaneRange]) -> LaneRows:
        asked = [(*bounds_of(lane), lane.limit) for lane in ranges]
        with django_errors(self.place):
            pages = [[_row(*row) for row in rows] for rows in self._ask(self.schema.page(), asked)]
        # Each day gave its first rows: the first of all are among them.
        return {
            (lane.partition, lane.customer_id): each_offset_once(rows)[: lane.limit]
            for lane, rows in zip(ranges, pages, strict=True)
        }

    def count(self, lane: LaneRange) -> int:
        with django_errors(self.place):
            return len({row[0] for rows in self._ask(self.schema.offsets(), [bounds_of(lane)]) for row in rows})

    def oldest_day(self) -> date | None:
        """Every day can be stored under: rows leave by their own age."""
        return None

    def diagnose(self) -> Iterator[tuple[str, bool, str]]:
        """One line: reads a lane that nobody has, at the level of every read."""
        try:
            self.count(NOBODY)  # connects
            started = time.perf_counter()
            self.count(NOBODY)
        except DatabaseError as error:
            yield "overflow store", False, str(error)
            return
        took = (time.perf_counter() - started) * 1000
        metadata = self.session.cluster.metadata
        faults = "; ".join(faults_of(self.place, metadata))
        yield "overflow store", not faults, faults or condition(self.place, metadata, took)

    def close(self) -> None:
        with self._connecting:
            session, self._session, self._known = self._session, None, {}
        if session:
            session.cluster.shutdown()

    @property
    def session(self) -> Session:
        with self._connecting:
            if self._session is None:
                self._session = connected(self.place)
            return self._session

    def _prepared(self, cql: str) -> PreparedStatement:
        if cql not in self._known:
            self._known[cql] = self.session.prepare(cql)
        return self._known[cql]

    def _ask(self, cql: str, asked: Sequence[Sequence[object]]) -> Iterator[Iterable[Any]]:
        """The rows of each, in the order asked."""
        if asked:
            for _success, rows in execute_concurrent_with_args(self.session, self._prepared(cql), asked, AT_ONCE):
                yield rows

    def _batches(self, rows: Sequence[OverflowRow]) -> Iterator[BatchStatement]:
        """One or more for each lane and day: all rows of a batch are in one partition, so that it needs no log."""
        lanes: dict[tuple[int, str, date], list[OverflowRow]] = defaultdict(list)
        for row in rows:
            lanes[row.partition, row.customer_id, row.day].append(row)
        for together in lanes.values():
            batch, size = BatchStatement(BatchType.UNLOGGED, consistency_level=level_of(self.place)), 0
            for row in together:
                if size and size + len(row.payload) + len(row.headers) > BATCH_BYTES:
                    yield batch
                    batch, size = BatchStatement(BatchType.UNLOGGED, consistency_level=level_of(self.place)), 0
                batch.add(self._prepared(self.schema.insert()), _values(row))
                size += len(row.payload) + len(row.headers)
            yield batch


@contextmanager
def django_errors(place: CassandraPlace) -> Iterator[None]:
    """The driver's errors as Django's: whoever writes rows waits for a store that is away, and parks what it refuses."""
    try:
        yield
    except InvalidRequest as error:
        if any(words in str(error) for words in MISSING):
            raise ProgrammingError(f"{described(place, error)}: run create_overflow_store") from error
        raise DataError(described(place, error)) from error
    except struct.error as error:  # a customer id too long for a key
        raise DataError(described(place, error)) from error
    except AWAY as error:
        raise OperationalError(described(place, error)) from error


def described(place: CassandraPlace, error: Exception) -> str:
    """One line that names the setting, the servers and what they said, without a password."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return f"CASSANDRA_URL ({place}): {text[:300]}"


def connected(place: CassandraPlace) -> Session:
    """A session of a new cluster: one whose first connection failed refuses every other."""
    cluster = cluster_of(place)
    try:
        return cluster.connect()
    except BaseException:
        cluster.shutdown()
        raise


def cluster_of(place: CassandraPlace) -> Cluster:
    near = DCAwareRoundRobinPolicy(place.datacenter) if place.datacenter else RoundRobinPolicy()
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(near),
        consistency_level=level_of(place),
        request_timeout=SECONDS,
        row_factory=lambda _names, rows: rows,
    )
    return Cluster(
        list(place.hosts),
        place.port,
        auth_provider=PlainTextAuthProvider(place.user, place.password) if place.user else None,
        ssl_context=ssl.create_default_context(cafile=place.cafile) if place.cafile else None,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        reconnection_policy=ConstantReconnectionPolicy(RETRY_SECONDS, max_attempts=None),
        protocol_version=5,
    )


def level_of(place: CassandraPlace) -> int:
    return int(ConsistencyLevel.name_to_value[place.consistency])


def days_of(lane: LaneRange) -> list[date]:
    """From the lane's day to tomorrow, by the clock of whoever stored it, or to its newest row's."""
    last = max(datetime.now(UTC).date() + DAY, lane.newest or lane.day)
    return [lane.day + DAY * number for number in range((last - lane.day).days + 1)]


def bounds_of(lane: LaneRange) -> tuple[object, ...]:
    return lane.customer_id, days_of(lane), lane.partition, lane.topic_id, lane.drained, lane.upto


_values = attrgetter(*COLUMNS)


def _row(
    customer_id: str, day: Date, partition: int, topic_id: str, offset: int, payload: bytes, headers: bytes, *more: Any
) -> OverflowRow:
    return OverflowRow(partition, customer_id, topic_id, offset, day.date(), payload, headers, *more)
