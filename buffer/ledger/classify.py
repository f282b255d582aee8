"""What each record of a batch is, in their order, given what the ledger and the stocks say. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from buffer.ledger.prepared import Key, Tracked
from buffer.ledger.statements import Group, KnownMovement, Row

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


@dataclass
class MovementClassifier:
    """Classifies records one after the other; what one of them records counts for the next.

    A record applies wholly or not at all: when one of its keys contradicts the ledger, none is recorded. Keys that
    are known with the same delta are left out, the missing ones are added; then all of them are in the ledger.
    """

    known: dict[tuple[Group, Key], KnownMovement]
    quantities: dict[str, int]  # of the stocks that exist
    create_unknown: bool
    allow_negative: bool
    replayed: bool
    topic_ids: Mapping[str, str]
    moved: dict[tuple[Group, str], set[str]]  # by the references of whole movements
    wanted: dict[Group, dict[Key, Row]] = field(default_factory=dict)

    def verdict(self, tracked: Tracked) -> Verdict:
        missing: list[Row] = []
        for row in tracked.rows():
            known = self.known.get((tracked.group, row[:2]))
            if known is None:
                missing.append(row)
            elif wrong := known.contradiction(row, *self._topic_of(tracked), replayed=self.replayed):
                return Verdict(wrong, row[1])
        if others := self._others(tracked):
            return Verdict("conflicting_effect", min(others))
        for row in missing:
            if refusal := self._refusal(row[1], row[2]):
                return Verdict(refusal, row[1])
        for row in missing:
            self._record(tracked, row)
        return Verdict("applied" if missing else "duplicate")

    def _others(self, tracked: Tracked) -> set[str]:
        """Stocks that this whole movement moved before and does not name now: its ends would no longer cancel out."""
        if not tracked.movements.whole:
            return set()
        return self.moved.get((tracked.group, tracked.movements.reference_id), set()) - set(tracked.movements.deltas)

    def _topic_of(self, tracked: Tracked) -> tuple[str, str]:
        topic = tracked.record.topic
        return topic, self.topic_ids.get(topic, "")

    def _refusal(self, stock_id: str, delta: int) -> str:
        quantity = self.quantities.get(stock_id)
        if quantity is None and not self.create_unknown:
            return "unknown_stock"
        if not self.allow_negative and delta < 0 and (quantity or 0) + delta < 0:
            return "negative_stock"
        return ""

    def _record(self, tracked: Tracked, row: Row) -> None:
        _, _, delta, partition, offset, _, payload_hash = row
        self.wanted.setdefault(tracked.group, {})[row[:2]] = row
        self.known[tracked.group, row[:2]] = KnownMovement(
            delta, *self._topic_of(tracked), partition, offset, payload_hash
        )
        if tracked.movements.whole:
            self.moved.setdefault((tracked.group, row[0]), set()).add(row[1])
        self.quantities[row[1]] = self.quantities.get(row[1], 0) + delta
