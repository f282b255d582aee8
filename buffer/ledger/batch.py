"""A polled batch of the stock topics: decoded, and each record classified by what the ledger says. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from buffer.ledger.statements import Group, KnownMovement, Row
from buffer.ledger.topics import Merchant, Movements, Variant, words_of
from config.database.upsert import Packed
from config.kafka import Record
from outbox.letters.burial import Letter, Place, RecordOutcomes

# -- A decoded batch ---------------------------------------------------------------------------------------
Key = tuple[str, str]  # reference, stock


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
        for stock, delta in deltas.items():  # not `tracked.rows()`: half as long again, once for each record
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
class Applied(RecordOutcomes):
    """What a batch did to the ledger."""

    REPEATED = "duplicate"

    movements: Counter[Place] = field(default_factory=Counter)
    replayed: bool = False
    effective: list[Tracked] = field(default_factory=list)  # records that moved a stock

    def change(self, key: Hashable, record: Record) -> None:
        """For a replay: what the outcome of later records may depend on."""
        if self.replayed:
            self.changed.setdefault(key, []).append(record)

    def number(self, outcome: str) -> int:
        return sum(number for (_place, name), number in self.outcomes.items() if name == outcome)


# -- What each record is -----------------------------------------------------------------------------------
REASONS = {
    "unknown_stock": "{stock} {about} is not known: import it, or set LEDGER_UNKNOWN_STOCK=create",
    "conflicting_effect": "the same reference moved {stock} {about} before, and not as this record says",
    "position_conflict": "this position was read before with another payload: was the topic created again?",
    "negative_stock": "{stock} {about} would become negative, which LEDGER_NEGATIVE_STOCK=park refuses",
}


@dataclass(frozen=True)
class Verdict:
    """`applied`, `duplicate`, or why the record is parked; `about` is the stock that decided."""

    outcome: str
    about: str = ""

    @property
    def is_refusal(self) -> bool:
        return self.outcome in REASONS

    def text(self, topic: str) -> str:
        return REASONS[self.outcome].format(stock=words_of(topic)["stock"], about=self.about)

    def template(self, topic: str) -> str:
        """The same for every stock."""
        return Verdict(self.outcome, "…").text(topic)


APPLIED, DUPLICATE = Verdict("applied"), Verdict("duplicate")


@dataclass
class MovementClassifier:
    """Classifies records one after the other; what one of them records counts for the next.

    A record applies wholly or not at all: when one of its keys contradicts the ledger, none is recorded. Keys that
    are known with the same delta are left out, the missing ones are added; then all of them are in the ledger.
    """

    known: dict[Group, dict[Key, KnownMovement]]
    quantities: dict[str, int]  # of the stocks that exist
    create_unknown: bool
    allow_negative: bool
    replayed: bool
    topic_ids: Mapping[str, str]
    moved: dict[Group, dict[str, set[str]]]  # by the references of whole movements
    wanted: dict[Group, dict[Key, Row]] = field(default_factory=dict)

    def verdict(self, tracked: Tracked) -> Verdict:
        group, place = tracked.group, self._place_of(tracked.record)
        known_here = self.known.setdefault(group, {})
        missing: list[Row] = []
        for row in tracked.rows():
            known = known_here.get(row[:2])
            if known is None:
                missing.append(row)
            elif wrong := known.contradiction(row, *place[:2], replayed=self.replayed):
                return Verdict(wrong, row[1])
        if others := self._others(tracked):
            return Verdict("conflicting_effect", min(others))
        for row in missing:
            if refusal := self._refusal(row[1], row[2]):
                return Verdict(refusal, row[1])
        if not missing:
            return DUPLICATE
        self._record(group, missing, place, whole=tracked.movements.whole)
        return APPLIED

    def _others(self, tracked: Tracked) -> set[str]:
        """Stocks that this whole movement moved before and does not name now: its ends would no longer cancel out."""
        if not tracked.movements.whole:
            return set()
        moved = self.moved.get(tracked.group, {}).get(tracked.movements.reference_id, set())
        return moved - set(tracked.movements.deltas)

    def _place_of(self, record: Record) -> tuple[str, str, int, int]:
        return record.topic, self.topic_ids.get(record.topic, ""), record.partition, record.offset

    def _refusal(self, stock_id: str, delta: int) -> str:
        quantity = self.quantities.get(stock_id)
        if quantity is None and not self.create_unknown:
            return "unknown_stock"
        if not self.allow_negative and delta < 0 and (quantity or 0) + delta < 0:
            return "negative_stock"
        return ""

    def _record(self, group: Group, rows: Sequence[Row], place: tuple[str, str, int, int], *, whole: bool) -> None:
        wanted, known = self.wanted.setdefault(group, {}), self.known[group]
        for row in rows:
            key, (reference, stock, delta, *_, payload_hash) = row[:2], row
            wanted[key] = row
            known[key] = KnownMovement(delta, *place, payload_hash)
            self.quantities[stock] = self.quantities.get(stock, 0) + delta
            if whole:
                self.moved.setdefault(group, {}).setdefault(reference, set()).add(stock)
