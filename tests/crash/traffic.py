"""What is sent: orders, their repeats and updates, and poison, in random order, the same for the same seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

SPELLINGS = ("WH-a", "WH-A", "WH-á", "WH-a ")
REPEATS, UPDATES, POISON = 0.10, 0.05, 0.01
SPREAD = timedelta(days=40)  # so that every warehouse has orders on both sides of a month's boundary
OVERSIZE = 70_000
TAG = "order:"
REQUESTS = "transfer-requests"


@dataclass(frozen=True)
class Sample:
    """One record to produce; `version` is 0 for poison and counts an order's payloads from 1."""

    location: str
    order: str
    version: int
    value: bytes | None
    topic: str = REQUESTS
    timestamp: int | None = None  # milliseconds; None: when it is sent

    @property
    def key(self) -> bytes:
        return self.location.encode()


def traffic(orders: int, warehouses: int, seed: int) -> list[Sample]:
    """`orders` valid orders, 10 % of them again, 5 % of them changed, 1 % poison besides, shuffled."""
    rng = random.Random(seed)
    names = [*SPELLINGS, *(f"WH-{number:03d}" for number in range(max(1, warehouses - len(SPELLINGS))))]
    now = datetime.now(UTC).replace(microsecond=0)
    first = [_order(rng, rng.choice(names), number, now) for number in range(orders)]
    repeats = rng.choices(first, k=int(orders * REPEATS))
    updates = [_changed(rng, sample) for sample in rng.sample(first, int(orders * UPDATES))]
    twice = [_changed(rng, sample) for sample in rng.sample(updates, len(updates) // 5)]
    kinds = list(poisons(rng, now))
    bad = [kinds[number % len(kinds)](f"P{number}", rng.choice(names)) for number in range(int(orders * POISON))]
    samples = [*first, *repeats, *updates, *twice, *bad]
    rng.shuffle(samples)
    return samples


def _order(rng: random.Random, location: str, number: int, now: datetime) -> Sample:
    # Pairs of orders whose ids differ in case only: an index that folds it would merge them.
    order = f"{'a' if number % 2 else 'A'}{number // 2:06d}"
    at = now - SPREAD * rng.random()
    zone = rng.choice(["Z", "+00:00", "+05:30", "-08:00"])
    return _sample(rng, location, order, 1, written(at, zone))


def written(at: datetime, zone: str) -> str:
    """The instant as it reads in that zone: the UTC month is not always the one that is written."""
    hours = {"Z": 0.0, "+00:00": 0.0, "+05:30": 5.5, "-08:00": -8.0}[zone]
    local = at.replace(tzinfo=None) + timedelta(hours=hours)
    return local.isoformat(timespec="microseconds") + zone


def _changed(rng: random.Random, sample: Sample) -> Sample:
    at = json.loads(sample.value or b"")["ordered_at"]
    return _sample(rng, sample.location, sample.order, sample.version + 1, at)


def _sample(rng: random.Random, location: str, order: str, version: int, at: str) -> Sample:
    # The quantity of the order's own SKU is the version, so that every batch says which one it took.
    items = [{"sku": f"{TAG}{order}", "quantity": version}]
    items += [{"sku": f"S{rng.randrange(300):03d}", "quantity": rng.randint(1, 12)} for _ in range(rng.randint(1, 4))]
    body = {"order_id": order, "location_id": location, "ordered_at": at, "items": items, "note": "größer ✓ \\u0000"}
    return Sample(location, order, version, json.dumps(body, ensure_ascii=rng.random() < 0.5).encode())


Poison = Callable[[str, str], Sample]


def poisons(rng: random.Random, now: datetime) -> Iterator[Poison]:
    """Every kind of record that no table can hold or no reader can understand."""

    def valid(order: str, location: str, **changes: object) -> dict:
        item = {"sku": "S001", "quantity": 1}
        body = {"order_id": order, "location_id": location, "ordered_at": now.isoformat(), "items": [item]}
        return {**body, **changes}

    def kind(make: Callable[[str, str], bytes | None]) -> Poison:
        return lambda order, location: Sample(location, order, 0, make(order, location))

    def changed(**changes: object) -> Poison:
        return kind(lambda order, location: json.dumps(valid(order, location, **changes)).encode())

    def without(field: str) -> Poison:
        return kind(lambda order, location: json.dumps(
            {name: value for name, value in valid(order, location).items() if name != field}
        ).encode())  # fmt: skip

    yield kind(lambda order, location: f'{{"order_id": "{order}", '.encode())
    yield kind(lambda order, location: b"")
    yield kind(lambda order, location: None)
    yield kind(lambda order, location: json.dumps([order]).encode())
    yield kind(lambda order, location: json.dumps(valid(order, location)).encode() + b"\xff\xfe")
    yield kind(lambda order, location: b'{"note": "\xed\xa0\x80", ' + json.dumps(valid(order, location)).encode()[1:])
    yield kind(lambda order, location: json.dumps(valid(order, location)).encode() + b"\x00")
    yield kind(lambda order, location: json.dumps(valid(order, location, note=_nested(200))).encode())
    yield kind(lambda order, location: (order + "[" * 50_000).encode())
    yield from map(without, ("order_id", "location_id", "ordered_at", "items"))
    yield changed(order_id=7)
    yield changed(order_id="a\x00b")
    yield changed(location_id="WH\x00")
    yield changed(order_id="x" * 5_000)
    yield changed(note="x" * OVERSIZE)
    yield changed(note="\ud800")
    yield changed(items=[])
    yield changed(items=[{"sku": "S001", "quantity": 1.5}])
    yield changed(items=[{"sku": "S001", "quantity": 2**70}])
    yield changed(items=[{"sku": "S001", "quantity": float("nan")}])
    yield changed(items=[{"sku": "S001", "quantity": -3}])
    yield changed(ordered_at="yesterday")
    yield changed(ordered_at="2026-01-01T00:00:00")
    yield changed(ordered_at=written(now - timedelta(days=900), "Z"))
    yield changed(ordered_at=written(now + timedelta(days=900), "Z"))
    yield changed(ordered_at="0001-01-01T00:00:00+14:00")


def _nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value
