"""The overflow store in Cassandra: keyspace, table and requests, and what is wrong with a keyspace; needs no driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from config.environment.databases import CassandraPlace

if TYPE_CHECKING:
    from cassandra.metadata import Metadata, _ReplicationStrategy
    from cassandra.pool import Host

# -- Keyspace, table and requests, as CQL --------------------------------------------------------------------
DAY_SECONDS = 86_400
NAME = "overflow_message"
COLUMNS = (
    "customer_id", "day", "partition", "topic_id", "offset",
    "payload", "headers", "created_us", "expires_us", "notification_id",
)  # fmt: skip
TABLE = """CREATE TABLE IF NOT EXISTS {table} (
    customer_id text, day date, partition int, topic_id text, offset bigint,
    payload blob, headers blob, created_us bigint, expires_us bigint, notification_id text,
    PRIMARY KEY ((customer_id, day, partition), topic_id, offset)
) WITH default_time_to_live = {seconds} AND gc_grace_seconds = 3600
AND compaction = {{'class': 'TimeWindowCompactionStrategy',
    'compaction_window_unit': 'DAYS', 'compaction_window_size': 1}}"""
LANE = "WHERE customer_id = ? AND day IN ? AND partition = ? AND topic_id = ? AND offset > ? AND offset <= ?"


class OverflowSchema:
    """CQL for one place; rows live `days`."""

    def __init__(self, place: CassandraPlace, days: int) -> None:
        self.place = place
        self.table = f"{place.keyspace}.{NAME}"
        self.seconds = days * DAY_SECONDS

    def statements(self) -> list[str]:
        """Each may be repeated."""
        return [self.keyspace(), TABLE.format(table=self.table, seconds=self.seconds)]

    def keyspace(self) -> str:
        place = self.place
        kind = (
            f"'NetworkTopologyStrategy', '{place.datacenter}': {place.replication}"
            if place.datacenter
            else f"'SimpleStrategy', 'replication_factor': {place.replication}"
        )
        return f"CREATE KEYSPACE IF NOT EXISTS {place.keyspace} WITH replication = {{'class': {kind}}}"

    def insert(self) -> str:
        """With the age of the settings, whatever it was when the table was made."""
        holders = ", ".join("?" * len(COLUMNS))
        return f"INSERT INTO {self.table} ({', '.join(COLUMNS)}) VALUES ({holders}) USING TTL {self.seconds}"  # noqa: S608

    def page(self) -> str:
        """The first rows of each day: days are not merged, a LIMIT of all would take those of one."""
        return f"SELECT {', '.join(COLUMNS)} FROM {self.table} {LANE} PER PARTITION LIMIT ?"  # noqa: S608

    def offsets(self) -> str:
        return f"SELECT offset FROM {self.table} {LANE}"  # noqa: S608


# -- What is wrong with a keyspace ---------------------------------------------------------------------------
def faults_of(place: CassandraPlace, metadata: Metadata) -> Iterator[str]:
    """One line for each; `metadata` is the cluster's."""
    strategy = metadata.keyspaces[place.keyspace].replication_strategy
    copies = copies_of(strategy, place.datacenter)
    if copies != place.replication:
        yield (
            f"keyspace {place.keyspace} keeps {copies} copies, CASSANDRA_URL says replication={place.replication}: "
            "alter the keyspace and repair it, or the URL"
        )
    nodes = nodes_of(place, metadata)
    if len(nodes) < copies:
        yield f"{copies} copies on {len(nodes)} nodes: some are never made"
    down = [str(host.address) for host in nodes if host.is_up is False]
    if down:
        enough = len(down) <= copies - place.answers
        yield (
            f"down: {', '.join(sorted(down))}; a request needs {place.answers} of {copies} copies, "
            + ("which the others have" if enough else "so some are refused until one is back")
        )


def nodes_of(place: CassandraPlace, metadata: Metadata) -> list[Host]:
    """Those that may hold copies."""
    return [host for host in metadata.all_hosts() if place.datacenter in ("", host.datacenter)]


def copies_of(strategy: _ReplicationStrategy, datacenter: str) -> int:
    """How many copies there are, of a datacenter when it is named."""
    by_name = getattr(strategy, "dc_replication_factors", None)
    if by_name is None:
        return int(strategy.replication_factor)
    return int(by_name.get(datacenter, 0) if datacenter else min(by_name.values(), default=0))


def condition(place: CassandraPlace, metadata: Metadata, milliseconds: float) -> str:
    versions = {host.release_version for host in metadata.all_hosts() if host.release_version}
    nodes = len(nodes_of(place, metadata))
    kept = f"copies {place.replication}, nodes {nodes}, {place.consistency}: {place.answers} answer each request"
    return f"Cassandra {'/'.join(sorted(versions))} at {place} answers in {milliseconds:.1f} ms; {kept}"
