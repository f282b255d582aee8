"""What the overflow store consists of in Cassandra: its keyspace, its table, and the requests to it, as CQL."""

from __future__ import annotations

from config.environment.cassandra_url import CassandraPlace

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
