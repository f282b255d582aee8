"""What the ledger's bench reads: payments and transfers over a thousand stocks, a fifth of them delivered again."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

from tests.bench.events import create_topic, flush, new_producer, send

PAID, MOVED = "PAYMENT_SUCCESS", "MATERIAL_TRANSFERRED"
TOPICS = (
    PAID, MOVED, "PURCHASE_ORDER_RECEIVED", "KITCHEN_TICKET_ITEM_STATUS_CHANGED", "merchant-cdc",
    "product-variant-cdc",
)  # fmt: skip
STOCKS = 1000
AGAIN = 0.20


def stock(number: int) -> str:
    return f"ST-{number:04d}"


def messages(number: int, seed: int = 1) -> Iterator[tuple[str, str, bytes]]:
    """`(topic, key, value)`: one half payments of two lines, one half transfers, so two movements each."""
    rng = random.Random(seed)
    sent: list[tuple[str, str, bytes]] = []
    for n in range(number):
        if sent and rng.random() < AGAIN:
            yield rng.choice(sent)
            continue
        one, two = (stock(place) for place in rng.sample(range(STOCKS), 2))
        if n % 2:
            items = [{"stockId": name, "quantity": rng.randint(1, 9)} for name in (one, two)]
            made = (PAID, f"SO-{n:08d}", {"saleOrderId": f"SO-{n:08d}", "merchantId": "M1", "items": items})
        else:
            body = {"fromStockId": one, "toStockId": two, "quantity": rng.randint(1, 9)}
            made = (MOVED, f"TR-{n:08d}", {"transferId": f"TR-{n:08d}", **body})
        sent.append((made[0], made[1], msgspec.json.encode(made[2])))
        yield sent[-1]


def produce(servers: str, prefix: str, number: int) -> None:
    """Fill the stock topics, which are new."""
    for topic in TOPICS:
        create_topic(servers, f"{prefix}{topic}")
    producer = new_producer(servers)
    for topic, key, value in messages(number):
        send(producer, f"{prefix}{topic}", value, key)
    flush(producer)
