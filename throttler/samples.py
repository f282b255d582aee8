"""Plausible notifications, the same for the same seed: many quiet customers, one over the rate, some poison."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from config.database.clock import database_now
from config.flows import Deed, Sample
from config.kafka import topic_name
from throttler.customers.models import Customer
from throttler.engine.transaction import INPUT

QUIET = [f"C-{number:02d}" for number in range(1, 31)]
LOUD = "C-LOUD"
RATES = "8/s"
BUNCH = 12  # messages of the loud customer in a row, in each ROUND: over its rate for a moment, below it on the whole
ROUND = 60
POISON = [b"{not json", b'{"customer_id": "C-01"}', b"[]"]
SUBJECTS = ["Your parcel is on its way", "Your invoice", "We miss you", "A new sign-in", "Rate your order"]


def notifications(seed: int, poison: float = 0.004) -> Iterator[Sample | Deed]:
    """Endless samples; the first one makes the loud customer."""
    rng = random.Random(seed)  # noqa: S311 (sample data)
    yield Deed(add_loud_customer)
    number = 0
    while True:
        number += 1
        if rng.random() < poison:
            yield Sample(topic_name(INPUT), "poison", rng.choice(POISON))
            continue
        customer = LOUD if number % ROUND < BUNCH else rng.choice(QUIET)
        yield _sample(rng, customer)


def add_loud_customer() -> None:
    """A row for the one with a rate of its own; a known one stays as it is."""
    now = database_now()
    row = Customer(pk=LOUD, rates=RATES, burst=4, created_at=now, updated_at=now)
    Customer.objects.bulk_create([row], ignore_conflicts=True)


def customers_added() -> int:
    """How many of the samples that make customers have arrived."""
    return Customer.objects.filter(pk=LOUD).count()


def _sample(rng: random.Random, customer: str) -> Sample:
    body = {
        # Their ids come from the seed, so that the same traffic can be told from other traffic.
        "notification_id": str(uuid.UUID(int=rng.getrandbits(128), version=4)),
        "customer_id": customer,
        "recipient": f"user{rng.randint(1, 5000)}@example.org",
        "message": {"subject": rng.choice(SUBJECTS)},
        "created_at": datetime.now(UTC).isoformat(),
    }
    return Sample(topic_name(INPUT), customer, msgspec.json.encode(body))
