"""What a record of a stock topic does: movements of stock, or news of a merchant or a product variant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from config.fields import IDENTIFIER_LENGTH
from config.gate import InvalidRecord

LARGEST_DELTA = 2**53 - 1


class Movements(NamedTuple):
    """All movements of one reference: what each stock gains (or, negative, loses).

    `whole`: the reference never moves another stock, as with a transfer, whose two ends must cancel out.
    """

    reference_type: str
    reference_id: str
    deltas: dict[str, int]
    whole: bool = False


class Merchant(NamedTuple):
    """A merchant exists, or does not any more: it needs a default location."""

    merchant_id: str
    active: bool


class Variant(NamedTuple):
    """A product variant exists, or does not any more: it is an item. `None`: its merchant is still the same."""

    item_id: str
    merchant_id: str | None
    active: bool


# None: the record is of no concern, and is counted as skipped.
Effect: TypeAlias = Movements | Merchant | Variant | None


def summed(lines: Iterable[tuple[str, int]]) -> dict[str, int]:
    """`{stock: sum}`: a message may name a stock twice."""
    sums: dict[str, int] = {}
    for stock_id, quantity in lines:
        if stock_id not in sums:
            sums[stock_id] = quantity
            continue
        sums[stock_id] += quantity
        if abs(sums[stock_id]) > LARGEST_DELTA:
            raise InvalidRecord("out_of_range", f"the quantities of stock “{stock_id}” sum up beyond {LARGEST_DELTA}")
    return sums


def part_of(whole_id: str, part_id: str | None) -> str:
    """`whole/part`, which no other pair gives: the whole is escaped as in a JSON pointer (RFC 6901).

    Only a "/" or "~" in `whole_id` is written differently (`~1`, `~0`), so the first "/" always separates.
    """
    escaped = whole_id.replace("~", "~0").replace("/", "~1")
    reference = escaped if part_id is None else f"{escaped}/{part_id}"
    if len(reference) > IDENTIFIER_LENGTH:
        raise InvalidRecord("reference_too_long", f"“{reference[:60]}…” is longer than {IDENTIFIER_LENGTH} characters")
    return reference
