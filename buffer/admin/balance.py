"""The running balance of one stock, computed backwards from what it is now, over one page of its movements. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from buffer.admin.explain_stock import kind_of, source_of
from buffer.ledger.models import InventoryTracking

BETWEEN = "~"


@dataclass(frozen=True)
class BalanceLine:
    """A movement and what was there after it."""

    movement: InventoryTracking
    balance: int

    @property
    def kind(self) -> str:
        return kind_of(self.movement)

    @property
    def source(self) -> str:
        return source_of(self.movement)

    @property
    def before(self) -> int:
        return self.balance - self.movement.delta


@dataclass(frozen=True)
class Cursor:
    """A place between two movements, and the balance at it: no page has to sum up those before it."""

    pk: int
    balance: int

    @classmethod
    def parse(cls, text: str) -> Cursor | None:
        """None for anything that no page has written."""
        pk, _, balance = text.partition(BETWEEN)
        try:
            return cls(int(pk), int(balance))
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"{self.pk}{BETWEEN}{self.balance}"


@dataclass(frozen=True)
class MovementPage:
    """Some movements, newest first, and the cursors of the pages beside it; empty when there is none."""

    lines: Sequence[BalanceLine]
    newer: str = ""
    older: str = ""

    @property
    def trend(self) -> list[int]:
        """Balances in the order of time, from before the first movement on."""
        return [*(line.before for line in self.lines[-1:]), *(line.balance for line in self.lines[::-1])]


def falling(rows: Sequence[InventoryTracking], balance: int) -> list[BalanceLine]:
    """Lines of `rows`, newest first; `balance` is what was there after the newest of them."""
    lines = []
    for row in rows:
        lines.append(BalanceLine(row, balance))
        balance -= row.delta
    return lines


def rising(rows: Sequence[InventoryTracking], balance: int) -> list[BalanceLine]:
    """Lines of `rows`, oldest first; `balance` is what was there before the oldest. Newest first again."""
    lines = []
    for row in rows:
        balance += row.delta
        lines.append(BalanceLine(row, balance))
    return lines[::-1]
