"""Plausible stock traffic, the same for the same seed: receipts, sales, cooking, transfers, repeats, some poison."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping

import msgspec

from config.flows import Sample
from config.kafka import topic_name

STOCKS = [f"ST-{number:03d}" for number in range(1, 121)]
MATERIALS = [f"MT-{number:03d}" for number in range(1, 61)]
MERCHANTS = [f"M-{number:02d}" for number in range(1, 13)]
POISON = [b"{not json", b'{"saleOrderId": 7}', b'{"saleOrderId": "S", "merchantId": "M", "items": []}']
Message = tuple[str, str, bytes]  # topic, key, value


def stock_traffic(seed: int, poison: float = 0.004) -> Iterator[Sample]:
    """Endless samples; one in ten is a repeat. Stocks are filled before anything is taken from them."""
    rng = random.Random(seed)  # noqa: S311 (sample data)
    recent: list[Message] = []
    yield from map(_sample, _first(rng, seed))
    number = 0
    while True:
        draw = rng.random()
        if draw < poison:
            yield _sample(("PAYMENT_SUCCESS", "poison", rng.choice(POISON)))
            continue
        if recent and draw < 0.10:
            message = rng.choice(recent)
        else:
            number += 1
            message = rng.choices(MAKERS, WEIGHTS)[0](rng, f"{seed:02d}-{number:07d}")
            recent = [*recent[-199:], message]
        yield _sample(message)


def _first(rng: random.Random, seed: int) -> Iterator[Message]:
    """Merchants, variants, and enough of everything for a while."""
    for number, merchant in enumerate(MERCHANTS):
        yield _change("merchant-cdc", {"id": merchant, "merchant_id": merchant})
        yield _change("product-variant-cdc", {"id": f"V-{number:03d}", "merchant_id": merchant})
    for start in range(0, len(STOCKS + MATERIALS), 20):
        lines = [_line("stockId", name, 1000) for name in (STOCKS + MATERIALS)[start : start + 20]]
        order = f"PO{seed:02d}-{start:03d}"
        yield _message("PURCHASE_ORDER_RECEIVED", order, {"purchaseOrderId": order, "items": lines})


def _paid(rng: random.Random, name: str) -> Message:
    items = [_line("stockId", stock, rng.randint(1, 4)) for stock in rng.sample(STOCKS, rng.choice([1, 1, 2, 3]))]
    body = {"saleOrderId": f"SO{name}", "merchantId": rng.choice(MERCHANTS), "items": items}
    return _message("PAYMENT_SUCCESS", f"SO{name}", body)


def _received(rng: random.Random, name: str) -> Message:
    items = [_line("stockId", stock, rng.randint(5, 40)) for stock in rng.sample(STOCKS + MATERIALS, 4)]
    body = {"purchaseOrderId": f"PO{name}", "receiptId": f"R{rng.randint(1, 2)}", "items": items}
    return _message("PURCHASE_ORDER_RECEIVED", f"PO{name}", body)


def _cooked(rng: random.Random, name: str) -> Message:
    used = [_line("materialStockId", stock, rng.randint(1, 3)) for stock in rng.sample(MATERIALS, 2)]
    status = rng.choice(["PREPARING", "DONE", "DONE"])
    body = {"kitchenTicketItemId": f"KT{name}", "status": status, "materials": used}
    return _message("KITCHEN_TICKET_ITEM_STATUS_CHANGED", f"KT{name}", body)


def _moved(rng: random.Random, name: str) -> Message:
    source, target = rng.sample(MATERIALS, 2)
    ends = {"fromStockId": source, "toStockId": target, "quantity": rng.randint(1, 9)}
    return _message("MATERIAL_TRANSFERRED", f"TR{name}", {"transferId": f"TR{name}", **ends})


def _captured(rng: random.Random, name: str) -> Message:
    row = {"id": f"V-{rng.randint(0, 30):03d}", "merchant_id": rng.choice(MERCHANTS)}
    return _change("product-variant-cdc", row)


MAKERS: list[Callable[[random.Random, str], Message]] = [_paid, _received, _cooked, _moved, _captured]
WEIGHTS = [50, 8, 20, 18, 4]


def _line(field: str, stock: str, quantity: int) -> dict[str, object]:
    return {field: stock, "quantity": quantity}


def _message(topic: str, key: str, body: Mapping[str, object]) -> Message:
    return topic, key, msgspec.json.encode(body)


def _change(topic: str, row: dict[str, str]) -> Message:
    return _message(topic, row["id"], {"op": "u", "before": None, "after": row})


def _sample(message: Message) -> Sample:
    topic, key, value = message
    return Sample(topic_name(topic), key, value)
