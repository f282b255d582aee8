"""A polled batch after decoding, before any database has seen it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from buffer.positions import Position
from config.kafka import Record
from outbox.burial import Letter

Key = tuple[int, str, str]  # month, order, location
Row = tuple[int, str, str, str, str, int, int, int]  # … payload, hash, partition, offset, timestamp


@dataclass
class Prepared:
    """A decoded batch: the newest row of each order, what else came for it, and what was refused."""

    rows: dict[Key, Row] = field(default_factory=dict)
    records: dict[Key, list[tuple[Row, Record]]] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)
    read: Counter[int] = field(default_factory=Counter)


def position(row: Row, topic_id: str) -> Position:
    return Position(topic_id, row[5], row[6], row[7])
