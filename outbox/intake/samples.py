"""Plausible promises of another service, the same for the same seed: invoices by mail, some repeated, some that cannot be sent."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from config.flows import Sample
from config.kafka import topic_name

POISON = [
    b"{not json",
    b'{"channel": "email"}',
    b'{"channel": "fax", "event_type": "e", "aggregate": "a", "idempotency_key": "k", "payload": {}}',
]
REPEATED, SPOILED = 0.08, 0.01
NAMES = ["ada", "alan", "barbara", "edsger", "grace", "ken", "leslie", "margaret", "niklaus", "tony"]


def promises(topic: str, seed: int) -> Iterator[Sample]:
    """Endless samples for `topic`."""
    rng = random.Random(seed)  # noqa: S311 (sample data)
    recent: list[Mapping[str, Any]] = []
    number = 0
    while True:
        draw = rng.random()
        if draw < SPOILED:
            yield Sample(topic_name(topic), "poison", rng.choice(POISON))
            continue
        if recent and draw < REPEATED:
            envelope = rng.choice(recent)
        else:
            number += 1
            envelope = invoice(f"{seed:02d}-{number:06d}", f"{rng.choice(NAMES)}.{number}@example.org")
            recent = [*recent[-99:], envelope]
        yield Sample(topic_name(topic), envelope["aggregate"], msgspec.json.encode(envelope))


def invoice(number: str, to: str) -> dict[str, Any]:
    """The envelope of the mail about one invoice."""
    return {
        "channel": "email",
        "event_type": "invoice.issued",
        "aggregate": f"invoice:{number}",
        "idempotency_key": f"invoice/{number}/issued",
        "payload": {
            "to": to,
            "subject": f"Your invoice {number}",
            "text": f"Hello,\n\nyour invoice {number} is ready.\n",
        },
    }
