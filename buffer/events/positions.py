"""Which of two deliveries of an order is newer, in Python and in SQL: the two must agree."""

from __future__ import annotations

from typing import NamedTuple

OrderKey = tuple[int, str, str]  # month, order, location


class Position(NamedTuple):
    """A record's place; offsets compare only within one partition of one incarnation of a topic."""

    topic_id: str
    partition: int
    offset: int
    timestamp: int

    def newer_than(self, other: Position) -> bool:
        """Elsewhere the record timestamp decides, then the partition, so that every order of arrival agrees."""
        if (self.topic_id, self.partition) == (other.topic_id, other.partition):
            return self.offset > other.offset
        return (self.timestamp, self.partition) > (other.timestamp, other.partition)


NEWER = (
    "(CASE WHEN old.topic_id = new.topic_id AND old.source_partition = new.source_partition "
    "THEN old.source_offset < new.source_offset "
    "ELSE old.source_timestamp < new.source_timestamp OR "
    "(old.source_timestamp = new.source_timestamp AND old.source_partition < new.source_partition) END)"
)
