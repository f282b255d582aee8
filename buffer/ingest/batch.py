"""A polled batch of the input: decoded, and each record classified as new, late, repeated or in conflict. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from buffer.events.arrivals import OrderKey, Position
from config.database.upsert import Packed
from config.kafka import Record, RecordBatch, Tally
from outbox.letters.burial import Letter, known_before

# -- A decoded batch -----------------------------------------------------------------------------------------
# … hash, partition, offset, timestamp, traceparent, payload: MariaDB walks a row from its start for each column it unpacks.
Row = tuple[int, str, str, str, int, int, int, str | None, str]
Changed = tuple[int, str, str, int, int]  # … revision, partition


@dataclass
class Prepared:
    """A decoded batch: the newest row and all records of each order, and what was refused."""

    rows: dict[OrderKey, Row] = field(default_factory=dict)
    records: dict[OrderKey, list[tuple[Row, Record]]] = field(default_factory=dict)
    repeated: set[OrderKey] = field(default_factory=set)  # orders that came more than once
    ordered: Packed = field(default_factory=lambda: Packed(()))  # the rows as they will be written
    letters: list[Letter] = field(default_factory=list)
    read: Counter[int] = field(default_factory=Counter)
    outside: Counter[int] = field(default_factory=Counter)  # replayed, and older than what is kept


@dataclass
class StoredBatch:
    """What a batch changed among the events; buckets, groups and counters are updated from it afterwards."""

    read: Counter[int] = field(default_factory=Counter)
    outcomes: Counter[tuple[int, str]] = field(default_factory=Counter)  # (partition, outcome)
    arrivals: dict[str, tuple[int, int]] = field(default_factory=dict)  # location: new events, partition
    letters: list[Letter] = field(default_factory=list)
    settled: set[str] = field(default_factory=set)  # locations with orders that had been sent already
    touched: list[OrderKey] = field(default_factory=list)
    outside: int = 0
    parked: int = 0  # letters that were not there before

    def settle_letters(self, new: Sequence[Letter]) -> None:
        """Count letters that were there before as repeats: their records are read once more."""
        self.parked = len(new)
        for letter in known_before(self.letters, new):
            at = letter.record.partition
            self.outcomes[at, "late" if letter.step == "late" else "parked"] -= 1
            self.outcomes[at, "redelivered"] += 1

    def tally(self, batch: RecordBatch) -> Tally:
        """The same as a replay counts it."""
        applied = sum(number for (_, name), number in self.outcomes.items() if name in ("accepted", "superseded"))
        records = batch.prepared.records
        changed: dict[Hashable, list[Record]] = {key: [record for _row, record in records[key]] for key in self.touched}
        return Tally(applied, self.parked, self.outside, changed)


def position(row: Row, topic_id: str) -> Position:
    return Position(topic_id, row[4], row[5], row[6])


# -- What a further record of an order is -------------------------------------------------------------------
REASONS = {
    "late_event": "the order was already claimed or sent; requeue sends the difference as a supplement",
    "position_conflict": "this position was read before with another payload: was the topic created again?",
}


class StoredOrder(NamedTuple):
    """A stored order as it is read back: the fields are its columns."""

    partition_key: int
    order_id: str
    location_id: str
    status: str  # as it is stored: `claimed` does not tell whether its batch was sent
    batch_id: UUID | str  # as the driver reads it
    payload_hash: str
    topic_id: str
    source_partition: int
    source_offset: int
    source_timestamp: int
    seen_topic_id: str
    seen_partition: int | None  # None, as the two that follow, until a late record was seen
    seen_offset: int | None
    seen_timestamp: int | None
    seen_hash: str

    @property
    def key(self) -> OrderKey:
        return self[:3]

    @property
    def batch(self) -> UUID:
        return self.batch_id if isinstance(self.batch_id, UUID) else UUID(self.batch_id)

    @property
    def at(self) -> Position:
        return Position(self.topic_id, self.source_partition, self.source_offset, self.source_timestamp)

    @property
    def seen(self) -> Position | None:
        if self.seen_partition is None or self.seen_offset is None or self.seen_timestamp is None:
            return None
        return Position(self.seen_topic_id, self.seen_partition, self.seen_offset, self.seen_timestamp)


class OrderClassifier:
    """Decides, for one stored order, what each further record of it is.

    `source` is the newest record that says what the row says; `seen` is the producer's last word.
    """

    def __init__(self, stored: StoredOrder) -> None:
        self.stored = stored
        self.source = stored.at
        self.seen = stored.seen or self.source
        self.seen_hash = stored.seen_hash
        self.changed = False

    def verdict(self, at: Position, payload_hash: str) -> str:
        """`redelivered`, `late_event` or `position_conflict`; remembers what it has seen."""
        if at[:3] == self.source[:3] and payload_hash != self.stored.payload_hash:
            return "position_conflict"
        if self.stored.status == "pending" or not at.newer_than(self.source) or not at.newer_than(self.seen):
            return "redelivered"
        repeated = payload_hash == self.seen_hash
        self.seen, self.seen_hash, self.changed = at, payload_hash, True
        if payload_hash == self.stored.payload_hash:
            self.source = at  # the producer took back what came between: letters of that are old news
            return "redelivered"
        return "redelivered" if repeated else "late_event"
