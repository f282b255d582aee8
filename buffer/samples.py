"""Plausible transfer requests, but for their times the same for the same seed: repeats, updates, and now and then poison."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from buffer.flush.freeze import iso
from config.flows import Sample

WAREHOUSES = [f"WH-{number:02d}" for number in range(1, 41)]
SKUS = [f"SKU-{number:04d}" for number in range(300)]
POISON = [b"{not json", b'{"order_id": 7}', b"\xff\xfe", b'{"order_id": "a\\u0000b"}', b"[" * 60 + b"]" * 60]


def transfer_requests(topic: str, seed: int, poison: float = 0.004) -> Iterator[Sample]:
    """Endless samples; one in ten is a repeat, one in twenty changes an order that was sent before."""
    rng = random.Random(seed)  # noqa: S311 (sample data)
    recent: list[dict] = []
    number = 0
    while True:
        draw = rng.random()
        if draw < poison:
            yield Sample(topic, rng.choice(WAREHOUSES), rng.choice(POISON))
            continue
        if recent and draw < 0.10:
            order = rng.choice(recent)
        elif recent and draw < 0.15:
            order = {**rng.choice(recent[-40:]), "items": _items(rng)}
            recent[:] = [order if known["order_id"] == order["order_id"] else known for known in recent]
        else:
            number += 1
            order = {
                "order_id": f"A{seed:02d}-{number:07d}",
                "location_id": rng.choice(WAREHOUSES),
                "ordered_at": iso(datetime.now(UTC)),
                "items": _items(rng),
            }
            recent = [*recent[-199:], order]
        yield Sample(topic, order["location_id"], msgspec.json.encode(order))


def _items(rng: random.Random) -> list[dict]:
    return [{"sku": sku, "quantity": rng.randint(1, 12)} for sku in rng.sample(SKUS, rng.choice([1, 1, 2, 2, 3, 5]))]
