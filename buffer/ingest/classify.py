"""What a further record of a stored order is: a redelivery, a late event, or a conflict. Pure."""

from __future__ import annotations

from buffer.events.positions import Position

REASONS = {
    "late_event": "the order was already claimed or sent; requeue sends the difference as a supplement",
    "position_conflict": "this position was read before with another payload: was the topic created again?",
}


class OrderClassifier:
    """Decides, for one stored order, what each further record of it is."""

    def __init__(
        self, status: str, payload_hash: str, topic_id: str, partition: int, offset: int, timestamp: int,
        seen_topic_id: str, seen_partition: int | None, seen_offset: int | None, seen_timestamp: int | None,
        seen_hash: str,
    ) -> None:  # fmt: skip
        self.status = status
        self.payload_hash = payload_hash
        self.source = Position(topic_id, partition, offset, timestamp)
        self.seen = self.source
        if seen_partition is not None and seen_offset is not None and seen_timestamp is not None:
            self.seen = Position(seen_topic_id, seen_partition, seen_offset, seen_timestamp)
        self.seen_hash = seen_hash
        self.changed = False

    def verdict(self, at: Position, payload_hash: str) -> str:
        """`redelivered`, `late_event` or `position_conflict`; remembers what it has seen."""
        if at[:3] == self.source[:3] and payload_hash != self.payload_hash:
            return "position_conflict"
        if self.status == "pending" or not at.newer_than(self.source) or not at.newer_than(self.seen):
            return "redelivered"
        if payload_hash in (self.payload_hash, self.seen_hash):
            return "redelivered"  # the producer said the same thing once more
        self.seen, self.seen_hash, self.changed = at, payload_hash, True
        return "late_event"
