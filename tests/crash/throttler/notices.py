"""What is sent to the throttler: customers with their rates, bursts, short lives, wrong partitions and poison."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from throttler.limits.rate import Rates, parse_rates

POISON, PAST, SHORT, ASTRAY = 0.01, 0.005, 0.02, 0.01
SHORT_TTL, CUSTOMER_TTL = 2, 20  # seconds
LOUD = 0.4  # of all messages come from a tenth of the customers
DEFAULT = "10/s"
TERMS = [
    ("5/s", ""), ("50/s", "1"), ("10/s", "100"), ("2/s", "10"), ("60/min", "20"), ("20/s;30/min", ""), ("8/s", ""),
    ("", ""), ("1/s", "5"),
]  # fmt: skip


@dataclass(frozen=True)
class Customer:
    """One customer's terms; without rates it has no row and sends at the default."""

    name: str
    rates_text: str
    burst_text: str
    ttl: int = 0

    @property
    def rates(self) -> Rates:
        return parse_rates(self.rates_text or DEFAULT, int(self.burst_text) if self.burst_text else None)


@dataclass(frozen=True)
class Notice:
    """One record to produce. `poison` is its whole value; of `astray` the partition is not the customer's."""

    number: int
    customer: Customer
    poison: bytes | None = None
    is_poison: bool = False
    ttl: int | None = None
    age: float = 0.0  # seconds it is older than its record
    astray: bool = False

    def value(self) -> bytes | None:
        if self.is_poison:
            return self.poison
        created = datetime.now(UTC) - timedelta(seconds=self.age)
        body = {
            "notification_id": f"n{self.number}", "customer_id": self.customer.name, "recipient": "ada@example.com",
            "message": {"n": self.number, "text": "größer ✓"}, "created_at": created.isoformat(),
        }  # fmt: skip
        return json.dumps(body | ({} if self.ttl is None else {"ttl_seconds": self.ttl})).encode()


def customers(count: int) -> list[Customer]:
    """The first tenth is loud, all of it at 10/s; a few of the others let their messages wait only for so long."""
    loud = [Customer(f"loud-{n}", "10/s", "", CUSTOMER_TTL if n % 5 == 4 else 0) for n in range(max(1, count // 10))]
    quiet = [Customer(f"c-{n}", *TERMS[n % len(TERMS)]) for n in range(count - len(loud))]
    return [*loud, *quiet]


def customers_csv(them: Sequence[Customer]) -> str:
    rows = [f"{c.name},{c.rates_text},{c.burst_text},{c.ttl or ''}" for c in them if c.rates_text]
    return "\n".join(["customer_id,rates,burst,ttl_seconds", *rows, ""])


def notices(them: Sequence[Customer], count: int, seed: int) -> list[Notice]:
    """In the order in which they are sent: runs of one customer's messages, shuffled."""
    rng = random.Random(seed)
    loud = [customer for customer in them if customer.name.startswith("loud")]
    quiet = [customer for customer in them if not customer.name.startswith("loud")] or loud
    runs = [*_runs(rng, loud, int(count * LOUD), 60), *_runs(rng, quiet, count - int(count * LOUD), 8)]
    rng.shuffle(runs)
    return [_notice(rng, number, customer) for number, customer in enumerate(c for run in runs for c in run)]


def _runs(rng: random.Random, them: Sequence[Customer], count: int, longest: int) -> Iterator[list[Customer]]:
    turn = 0
    while count > 0:
        length = min(count, rng.randint(1, longest))
        yield [them[turn % len(them)]] * length
        turn, count = turn + 1, count - length


def _notice(rng: random.Random, number: int, customer: Customer) -> Notice:
    kind = rng.random()
    if kind < POISON:
        return Notice(number, customer, rng.choice(POISONS), is_poison=True)
    kind -= POISON
    if kind < PAST:
        return Notice(number, customer, ttl=60, age=3600)
    kind -= PAST
    if kind < SHORT:
        return Notice(number, customer, ttl=SHORT_TTL)
    return Notice(number, customer, astray=kind - SHORT < ASTRAY)


def _without(field: str, **changed: object) -> bytes:
    body = {
        "notification_id": "x", "customer_id": "x", "recipient": "x", "message": {},
        "created_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return json.dumps({name: value for name, value in body.items() if name != field} | changed).encode()


POISONS: list[bytes | None] = [
    None, b"", b"{bad", b"[]", b"\xff\xfe", _without("customer_id"), _without("customer_id", customer_id="a\x00b"),
    _without("created_at", created_at="soon"), _without("", ttl_seconds=-1), _without("", ttl_seconds=10**7),
    _without("", ttl_seconds="1"), _without("", recipient="x" * 70_000), _without("", message=7),
]  # fmt: skip
