"""The overflow store in the relational database: its table, one statement for some hundred rows, one query for a hundred lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any
from zlib import crc32

from django.db import DEFAULT_DB_ALIAS, connections, models
from django.db.models import Count, F, Q, QuerySet

from config.database.dialects.ranges import RangeTable, ranges_of
from config.database.queries import batched
from config.fields import IdentifierField
from config.partitions.rotation import driver_for
from throttler.messages import microseconds, moment_of
from throttler.overflow.store import LaneRange, LaneRows, OverflowRow, OverflowStore, each_offset_once
from throttler.partitioned import OVERFLOW


# -- The table of messages over the rate ---------------------------------------------------------------------
# Rows are inserted and read, never updated, and leave with their day.
class OverflowMessage(models.Model):
    """A message that waits, or waited: what is left of a lane says its watermark, not its rows.

    The day stands last in the key: a lane is read across its days in the order of its offsets.
    """

    pk = models.CompositePrimaryKey("partition", "customer_id", "topic_id", "offset", "day")
    partition = models.IntegerField()
    customer_id = IdentifierField()
    topic_id = IdentifierField(max_length=36)
    offset = models.BigIntegerField()
    day = models.DateField()
    notification_id = IdentifierField(help_text="As the message says.")
    created_at = models.DateTimeField(help_text="The earlier of the message's own time and the record's.")
    expires_at = models.DateTimeField(null=True, help_text="Empty: its customer's TTL when it is judged.")
    headers = models.BinaryField(help_text="JSON of [[name, base64 value], …], or nothing.")
    payload = models.BinaryField(help_text="The record's value, byte for byte.")
    notification_hash = models.SmallIntegerField(
        null=True, help_text="One of 4,096, of the notification id: people search by it."
    )

    class Meta:
        # Few hashes, each in the order of offsets: rows go to the ends of 4,096 runs, which stay in memory however
        # large the table is, and a search passes one row in 4,096.
        indexes = [models.Index(fields=["notification_hash", "offset"], name="overflow_notification")]

    def __str__(self) -> str:
        return f"{self.customer_id} {self.partition}@{self.offset}"


# -- The overflow store in the relational database -----------------------------------------------------------
ROWS = 500  # a statement
LANES = 100  # a query; SQLite joins no more than 500
DAY = timedelta(days=1)
HASHES = 4096

TABLE = RangeTable(
    name=OverflowMessage._meta.db_table,
    columns=[
        ("partition", "int"),
        ("customer_id", "text"),
        ("topic_id", "text"),
        ("offset", "bigint"),
        ("day", "date"),
        ("notification_id", "text"),
        ("created_at", "timestamptz"),
        ("expires_at", "timestamptz"),
        ("headers", "bytea"),
        ("payload", "bytea"),
        ("notification_hash", "smallint"),
    ],
    lane=["partition", "customer_id", "topic_id"],
    position="offset",
    day="day",
)


class DjangoStore(OverflowStore):
    """Opens no transaction: `store` is one statement per 500 rows in the one of its caller."""

    def __init__(self, using: str = DEFAULT_DB_ALIAS) -> None:
        self.using = using

    def ensure(self) -> list[str]:
        return []

    def store(self, rows: Sequence[OverflowRow]) -> None:
        if not rows:
            return
        # In the order of the key: two writers of the same rows wait for each other, never in a circle.
        ordered = sorted(self._placed(rows), key=lambda row: row[:5])
        ranges = ranges_of(connections[self.using], TABLE)
        for start in range(0, len(ordered), ROWS):
            ranges.insert(ordered[start : start + ROWS])

    def read(self, ranges: Sequence[LaneRange]) -> LaneRows:
        pages: LaneRows = {(lane.partition, lane.customer_id): [] for lane in ranges}
        for start in range(0, len(ranges), LANES):
            for row in self._first_rows(ranges[start : start + LANES]):
                pages[row.partition, row.customer_id].append(row)
        for lane in ranges:
            key = lane.partition, lane.customer_id
            pages[key] = self._filled(lane, pages[key])
        return pages

    def count(self, lane: LaneRange) -> int:
        return self.counts([lane])[0]

    def counts(self, lanes: Sequence[LaneRange]) -> list[int]:
        counts: dict[tuple[object, ...], int] = {}
        for some in batched(lanes, LANES):
            wanted = reduce(or_, (within(lane) & Q(partition=lane.partition) for lane in some))
            rows = OverflowMessage.objects.using(self.using).filter(wanted).order_by()
            numbers = rows.values_list(*TABLE.lane).annotate(number=Count("offset", distinct=True))
            counts.update({tuple(key): number for *key, number in numbers})
        return [counts.get((lane.partition, lane.customer_id, lane.topic_id), 0) for lane in lanes]

    def searched(self, limit: int) -> int | None:
        return None

    def find(self, lane: LaneRange, notification_id: str) -> OverflowRow | None:
        rows = self._rows_with(lane, notification_id).values_list(*TABLE.names).order_by("offset", "day")
        # Workers of the last release store rows without a hash for as long as they run.
        row = (
            rows.filter(notification_hash=hash_of(notification_id)).first()
            or rows.filter(notification_hash=None).first()
        )
        return _row(*row) if row else None

    def _rows_with(self, lane: LaneRange, notification_id: str) -> QuerySet[OverflowMessage]:
        # The sum keeps every planner off the key: three equal columns look better than a hash, and are the whole lane.
        rows = OverflowMessage.objects.using(self.using).alias(number=F("partition") + 0)
        return rows.filter(within(lane), number=lane.partition, notification_id=notification_id)

    def oldest_day(self) -> date | None:
        first = driver_for(OVERFLOW, self.using).existing()[0]
        # MySQL's first partition has no lower end.
        return first.lower or (first.upper - DAY if first.upper else None)

    def _placed(self, rows: Sequence[OverflowRow]) -> list[tuple[object, ...]]:
        """Rows as the table takes them; asks for the oldest day only when one may be too old."""
        # Today and yesterday are always there.
        yesterday = datetime.now(UTC).date() - DAY
        oldest = self.oldest_day() if min(row.day for row in rows) < yesterday else None
        moment = connections[self.using].ops.adapt_datetimefield_value
        return [
            (
                row.partition,
                row.customer_id,
                row.topic_id,
                row.offset,
                max(row.day, oldest) if oldest else row.day,
                row.notification_id,
                moment(moment_of(row.created_us)),
                moment(moment_of(row.expires_us)) if row.expires_us else None,
                row.headers,
                row.payload,
                hash_of(row.notification_id),
            )
            for row in rows
        ]

    def _first_rows(self, ranges: Sequence[LaneRange]) -> list[OverflowRow]:
        wanted = [
            (lane.partition, lane.customer_id, lane.topic_id, lane.drained, lane.upto, lane.day, lane.limit)
            for lane in ranges
        ]
        return [_row(*values) for values in ranges_of(connections[self.using], TABLE).first_rows(wanted)]

    def _filled(self, lane: LaneRange, rows: list[OverflowRow]) -> list[OverflowRow]:
        """Each offset once; where a second row of one took a place, the page is read on."""
        once = each_offset_once(rows)
        full = len(rows) == lane.limit
        while full and once and (rest := lane.limit - len(once)):
            more = self._first_rows([replace(lane, drained=once[-1].offset, limit=rest)])
            full = len(more) == rest
            once = each_offset_once([*once, *more])
        return once


def hash_of(notification_id: str) -> int:
    return crc32(notification_id.encode()) % HASHES


def within(lane: LaneRange) -> Q:
    """The rows of a range; its partition apart."""
    offsets = Q(offset__gt=lane.drained, offset__lte=lane.upto)
    return offsets & Q(customer_id=lane.customer_id, topic_id=lane.topic_id, day__gte=lane.day)


def _microseconds(value: datetime | str | int | None) -> int:
    """Of a moment as the driver gives it, with a zone, without, or as text; or of one that the database counted."""
    if value is None or isinstance(value, int):
        return value or 0
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return microseconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _row(
    partition: int,
    customer_id: str,
    topic_id: str,
    offset: int,
    day: date | str,
    notification_id: str,
    created: datetime | str | int | None,
    expires: datetime | str | int | None,
    headers: Any,
    payload: Any,
    _hash: int | None,
) -> OverflowRow:
    stored = date.fromisoformat(day) if isinstance(day, str) else day
    times = _microseconds(created), _microseconds(expires)
    return OverflowRow(
        partition, customer_id, topic_id, offset, stored, bytes(payload), bytes(headers), *times, notification_id
    )
