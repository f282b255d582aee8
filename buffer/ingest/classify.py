"""What a further record of a stored order is: a redelivery, a late event, or a conflict. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from buffer.events.positions import Position

REASONS = {
    "late_event": "the order was already claimed or sent; requeue sends the difference as a supplement",
    "position_conflict": "this position was read before with another payload: was the topic created again?",
}


class StoredOrder(NamedTuple):
    """A stored order as it is read back: the fields are its columns."""

    partition_key: int
    order_id: str
    location_id: str
    status: str
    payload_hash: str
    topic_id: str
    source_partition: int
    source_offset: int
    source_timestamp: int
    seen_topic_id: str
    seen_partition: Any  # None, as the two that follow, until a late record was seen
    seen_offset: Any
    seen_timestamp: Any
    seen_hash: str


class OrderClassifier:
    """Decides, for one stored order, what each further record of it is.

    `source` is the newest record that says what the row says; `seen` is the producer's last word.
    """

    def __init__(self, stored: StoredOrder) -> None:
        self.stored = stored
        self.source = Position(*stored[5:9])
        self.seen = self.source if stored.seen_partition is None else Position(*stored[9:13])
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
