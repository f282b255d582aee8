"""A polled batch of the stock topics after decoding, before any database has seen it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from buffer.ledger.statements import Group, Row
from buffer.ledger.topics.effects import Merchant, Movements, Variant
from config.database.upsert import Packed
from config.kafka import Record
from outbox.letters.burial import Letter
from outbox.letters.handler import known_before

Key = tuple[str, str]  # reference, stock
Place = tuple[str, int]  # topic as the broker knows it, partition


class Tracked(NamedTuple):
    """A record that moves stock."""

    record: Record
    movements: Movements
    payload_hash: int

    @property
    def group(self) -> Group:
        return self.record.topic, self.movements.reference_type

    def rows(self) -> list[Row]:
        record, (_, reference, deltas, _), payload_hash = self
        rest = (record.partition, record.offset, record.timestamp, payload_hash)
        return [(reference, stock, delta, *rest) for stock, delta in deltas.items()]


@dataclass
class Prepared:
    """A decoded batch: what moves stock, what says something of merchants and variants, what was refused."""

    read: Counter[Place] = field(default_factory=Counter)
    tracked: list[Tracked] = field(default_factory=list)
    rows: dict[Group, dict[Key, Row]] = field(default_factory=dict)  # the first record of a key
    packed: dict[Group, Packed] = field(default_factory=dict)  # the same rows, as they will be written
    wholes: dict[Group, dict[str, set[str]]] = field(default_factory=dict)  # references to all they may move
    stocks: set[str] = field(default_factory=set)
    changes: list[tuple[Record, Merchant | Variant]] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    skipped: Counter[Place] = field(default_factory=Counter)
    contradicts: bool = False  # two records of the batch give one key different deltas, or one transfer other ends

    def add(self, tracked: Tracked) -> None:
        self.tracked.append(tracked)
        record, (_, reference, deltas, whole), payload_hash = tracked
        group = tracked.group
        rows = self.rows.setdefault(group, {})
        rest = (record.partition, record.offset, record.timestamp, payload_hash)
        for stock, delta in deltas.items():
            known = rows.get((reference, stock))
            if known is None:
                rows[reference, stock] = (reference, stock, delta, *rest)
            elif known[2] != delta:
                self.contradicts = True
        self.stocks.update(deltas)
        if whole:
            stocks = self.wholes.setdefault(group, {}).setdefault(reference, set(deltas))
            self.contradicts |= stocks != deltas.keys()

    def sort(self) -> Prepared:
        """By key: two workers with the same references then lock in the same order."""
        self.rows = {group: dict(sorted(rows.items())) for group, rows in sorted(self.rows.items())}
        self.packed = {group: Packed(rows.values()) for group, rows in self.rows.items()}
        return self


@dataclass
class Applied:
    """What a batch did to the ledger; letters, groups and counters are written from it afterwards."""

    outcomes: Counter[tuple[Place, str]] = field(default_factory=Counter)
    movements: Counter[Place] = field(default_factory=Counter)
    letters: list[Letter] = field(default_factory=list)
    parked: int = 0  # letters that were not there before
    replayed: bool = False
    changed: dict[Hashable, list[Record]] = field(default_factory=dict)  # only of a replay

    def settle(self, record: Record, outcome: str) -> None:
        self.outcomes[(record.topic, record.partition), outcome] += 1

    def settle_letters(self, new: Sequence[Letter]) -> None:
        """Count letters that were there before as repeats: their records are read once more."""
        self.parked = len(new)
        for letter in known_before(self.letters, new):
            self.outcomes[(letter.record.topic, letter.record.partition), "parked"] -= 1
            self.settle(letter.record, "duplicate")

    def change(self, key: Hashable, record: Record) -> None:
        """For a replay: what the outcome of later records may depend on."""
        if self.replayed:
            self.changed.setdefault(key, []).append(record)

    def number(self, outcome: str) -> int:
        return sum(number for (_place, name), number in self.outcomes.items() if name == outcome)
