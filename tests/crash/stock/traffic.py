"""What is sent to the ledger: payments, transfers, receipts and ticket items, their repeats, contradictions and poison."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

PAID, RECEIVED = "PAYMENT_SUCCESS", "PURCHASE_ORDER_RECEIVED"
COOKED, MOVED = "KITCHEN_TICKET_ITEM_STATUS_CHANGED", "MATERIAL_TRANSFERRED"
TOPICS = (PAID, RECEIVED, COOKED, MOVED, "merchant-cdc", "product-variant-cdc")
TYPES = {PAID: "SALE_ORDER", RECEIVED: "PURCHASE_ORDER", COOKED: "KITCHEN_TICKET_ITEM", MOVED: "TRANSFER"}
SPELLINGS = ("ST-a", "ST-A", "ST-á", "ST-a ")
REPEATS, OTHERS, CONFLICTS, POISON = 0.20, 0.02, 0.01, 0.01
OPENING = 1000
DAYS, DAY, JITTER = 3, 86_400_000, 600_000
BEYOND = 2**53


@dataclass(frozen=True)
class Message:
    """One record to produce and what it means: `deltas` is None for poison, empty for what moves nothing."""

    topic: str
    key: bytes
    value: bytes | None
    reference: str = ""
    deltas: Mapping[str, int] | None = None
    timestamp: int | None = None  # milliseconds; None: when it is sent
    whole: Any = field(default=None, compare=False, repr=False)  # the body, to make others of it


def stocks(number: int) -> list[str]:
    return [*SPELLINGS, *(f"ST-{n:04d}" for n in range(max(0, number - len(SPELLINGS))))]


def traffic(number: int, names: Sequence[str], seed: int) -> list[Message]:
    """`number` payments and transfers, receipts and ticket items besides, a fifth of all again, shuffled.

    Some of what comes again says the same in other words (which changes nothing), some another quantity
    (which whoever comes second is refused for).
    """
    rng = random.Random(seed)
    first = [(payment if n % 2 else transfer)(rng, names, n) for n in range(number)]
    first += [receipt(rng, names, n) for n in range(int(number * OTHERS))]
    first += [ticket(rng, names, n) for n in range(int(number * OTHERS))]
    again = rng.choices(first, k=int(len(first) * REPEATS))
    again = [reworded(rng, one) if rng.random() < 0.3 else one for one in again]
    others = [contradiction(one) for one in rng.sample(first, int(number * CONFLICTS)) if one.deltas]
    kinds = list(poisons(names))
    bad = [kinds[n % len(kinds)](f"P{n:06d}") for n in range(int(number * POISON))]
    found = [*first, *again, *others, *bad]
    rng.shuffle(found)
    return dated(rng, found)


def dated(rng: random.Random, found: Sequence[Message]) -> list[Message]:
    """Spread over the last days, a little out of order, as clocks are."""
    first = int(time.time() * 1000) - DAYS * DAY - JITTER
    return [
        replace(one, timestamp=first + n * DAYS * DAY // len(found) + rng.randrange(JITTER))
        for n, one in enumerate(found)
    ]


def name_of(number: int) -> str:
    """Pairs that differ in case only: an index that folds it would take one for the other."""
    return f"{'a' if number % 4 < 2 else 'A'}{number // 4:06d}{number % 2}"


def message(topic: str, reference: str, body: dict[str, Any], lines: Sequence[tuple[str, int]]) -> Message:
    sums: Counter[str] = Counter()
    for stock, delta in lines:
        sums[stock] += delta
    key = str(next(iter(body.values()))).encode()
    return Message(topic, key, encoded(body), reference, dict(sums), whole=body)


def encoded(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def lines_of(rng: random.Random, names: Sequence[str]) -> list[tuple[str, int]]:
    """One to three stocks, now and then one of them twice."""
    chosen = rng.sample(names, rng.randint(1, 3))
    again = [chosen[0]] if rng.random() < 0.1 else []
    return [(stock, rng.randint(1, 9)) for stock in [*chosen, *again]]


def items_of(lines: Sequence[tuple[str, int]], field_name: str = "stockId") -> list[dict[str, Any]]:
    return [{field_name: stock, "quantity": quantity} for stock, quantity in lines]


def payment(rng: random.Random, names: Sequence[str], number: int) -> Message:
    return paid(name_of(number), lines_of(rng, names))


def paid(sale: str, lines: Sequence[tuple[str, int]]) -> Message:
    body = {"saleOrderId": sale, "merchantId": "M1", "items": items_of(lines)}
    return message(PAID, sale, body, [(stock, -quantity) for stock, quantity in lines])


def transfer(rng: random.Random, names: Sequence[str], number: int) -> Message:
    return moved(name_of(number), *rng.sample(names, 2), rng.randint(1, 20))


def moved(name: str, source: str, target: str, quantity: int) -> Message:
    body = {"transferId": name, "fromStockId": source, "toStockId": target, "quantity": quantity}
    return message(MOVED, name, body, [(source, -quantity), (target, quantity)])


def receipt(rng: random.Random, names: Sequence[str], number: int) -> Message:
    """Every second one is a part of an order, and two parts make three receipts with the order's own."""
    order, lines = f"PO{number // 3}", lines_of(rng, names)
    body: dict[str, Any] = {"purchaseOrderId": order, "items": items_of(lines)}
    part = f"R{number}" if number % 3 else ""
    if part:
        body["receiptId"] = part
    return message(RECEIVED, f"{order}/{part}" if part else order, body, lines)


def ticket(rng: random.Random, names: Sequence[str], number: int) -> Message:
    """Of two ticket items one is done."""
    item, lines, done = f"K{number}", lines_of(rng, names), bool(number % 2)
    body = {
        "kitchenTicketItemId": item,
        "status": "DONE" if done else "COOKING",
        "materials": items_of(lines, "materialStockId"),
    }
    return message(COOKED, item, body, [(stock, -quantity) for stock, quantity in lines] if done else [])


def reworded(rng: random.Random, one: Message) -> Message:
    """The same effect in other bytes: a field that nobody asked for."""
    value = encoded({**one.whole, "note": f"größer ✓ {rng.random()}"})
    return replace(one, value=value)


def contradiction(one: Message) -> Message:
    """The same reference with one unit more."""
    body = json.loads(one.value or b"")
    line = body if one.topic == MOVED else body[next(name for name in ("items", "materials") if name in body)][0]
    line["quantity"] += 1
    deltas = dict(one.deltas or {})
    touched = list(deltas) if one.topic == MOVED else list(deltas)[:1]
    for stock in touched:
        deltas[stock] += 1 if deltas[stock] > 0 else -1
    return replace(one, value=encoded(body), deltas=deltas, whole=body)


Poison = Callable[[str], Message]


def poisons(names: Sequence[str]) -> Iterator[Poison]:
    """Every kind of record that moves nothing and must not be lost."""
    one, two = names[0], names[1]

    def kind(topic: str, value: Callable[[str], Any]) -> Poison:
        def make(reference: str) -> Message:
            made = value(reference)
            return Message(
                topic, reference.encode(), made if made is None or isinstance(made, bytes) else encoded(made)
            )

        return make

    def sale(items: Any) -> Poison:
        return kind(PAID, lambda name: {"saleOrderId": name, "merchantId": "M", "items": items})

    def move(source: Any, target: Any, quantity: Any) -> Poison:
        return kind(
            MOVED, lambda name: {"transferId": name, "fromStockId": source, "toStockId": target, "quantity": quantity}
        )

    yield kind(PAID, lambda name: f'{{"saleOrderId": "{name}", '.encode())
    yield kind(PAID, lambda name: None)
    yield kind(MOVED, lambda name: b"")
    yield kind(MOVED, lambda name: [name])
    yield kind(PAID, lambda name: {"saleOrderId": name, "items": items_of([(one, 1)])})
    yield kind(RECEIVED, lambda name: {"purchaseOrderId": name, "items": items_of([(one, 1)]), "note": "x" * 70_000})
    yield kind(COOKED, lambda name: {"kitchenTicketItemId": 7, "status": "DONE", "materials": []})
    yield sale([])
    yield sale([{"stockId": one}])
    yield from (sale(items_of([(one, quantity)])) for quantity in (0, -3, 1.5, BEYOND, 2**70))  # type: ignore[list-item]
    yield sale(items_of([(one, BEYOND - 1), (one, BEYOND - 1)]))
    yield sale(items_of([("ST-x\x00", 1)]))
    # Neither moves anything, although each names a stock that there is.
    yield sale(items_of([(one, 1), ("never heard of", 1)]))
    yield move(one, "never heard of", 1)
    yield move(one, one, 3)
    yield move(one, two, "3")
