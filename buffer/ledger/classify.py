"""What each record of a batch is, in their order, given what the ledger and the stocks say. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from buffer.ledger.prepared import Key, Tracked
from buffer.ledger.statements import Group, KnownMovement, Row
from config.kafka import Record

REASONS = {
    "unknown_stock": "stock {} is not known: import it, or set LEDGER_UNKNOWN_STOCK=create",
    "conflicting_effect": "the same reference moved stock {} before, and not as this record says",
    "position_conflict": "this position was read before with another payload: was the topic created again?",
    "negative_stock": "stock {} would become negative, which LEDGER_NEGATIVE_STOCK=park refuses",
}


@dataclass(frozen=True)
class Verdict:
    """`applied`, `duplicate`, or why the record is parked; `about` is the stock that decided."""

    outcome: str
    about: str = ""

    @property
    def is_refusal(self) -> bool:
        return self.outcome in REASONS

    @property
    def text(self) -> str:
        return REASONS[self.outcome].format(self.about)

    @property
    def template(self) -> str:
        """The same without the stock."""
        return REASONS[self.outcome].format("…")


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
