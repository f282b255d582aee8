"""python -m tests.crash.mail.promiser JOURNAL: a service that promises mails in Kafka, some twice, some wrongly."""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from tests.crash.stock.traffic import Message
from tests.crash.wire import Wire

TOPIC = "messages-in"
ENOUGH = "enough"  # a file beside the journal that ends what has made all of its promises
AGAIN, CONFLICT, POISON = 0.10, 0.02, 0.02  # for each promise
ABOUT = 4  # promises of an aggregate, at most
AT_ONCE = 20  # aggregates that are told of side by side
NOBODY = "nobody@example.com"  # in what must not leave


def arguments(description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("journal", type=Path)
    parser.add_argument("--events", type=int, required=True, help="promises to make, and more until it is enough")
    parser.add_argument("--rate", type=float, default=0.0, help="promises a second; 0: as fast as it goes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default="w", help="part of every aggregate")
    return parser.parse_args()


def main() -> None:
    given = arguments(__doc__)
    wire = Wire(os.environ["KAFKA_BOOTSTRAP_SERVERS"], os.environ["KAFKA_TOPIC_PREFIX"])
    try:
        with given.journal.open("w") as journal:
            enough = given.journal.with_name(ENOUGH)
            promise_all(wire, traffic(given.events, enough, given.seed, given.name), given.rate, journal)
    finally:
        wire.close()


def promise_all(wire: Wire, lines: Iterator[tuple[dict[str, Any], Message]], rate: float, journal: TextIO) -> None:
    """One record after the other; what the broker has acknowledged stands in the journal with its place."""
    began = time.monotonic()
    for number, (line, message) in enumerate(lines):
        if rate:
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
        (placed,) = wire.produce([message])  # type: ignore[list-item]
        value = base64.b64encode(message.value or b"").decode()
        place = {"partition": placed.partition, "offset": placed.offset, "value_b64": value}
        journal.write(json.dumps({**line, **place}) + "\n")
        journal.flush()


def traffic(events: int, enough: Path, seed: int, name: str) -> Iterator[tuple[dict[str, Any], Message]]:
    """`events` promises at least; after each perhaps an earlier one again, another mail under its key, or what no promise is."""
    rng = random.Random(seed)
    made: list[tuple[str, int]] = []
    open_ones: list[tuple[str, int]] = []  # aggregates, and how much is told of them
    aggregates = 0
    while len(made) < events or not enough.exists():
        if len(open_ones) < AT_ONCE:
            aggregates += 1
            open_ones.append((f"{name}{aggregates:06d}", 0))
        aggregate, told = open_ones.pop(rng.randrange(len(open_ones)))
        made.append((aggregate, told + 1))
        yield record("new", *made[-1])
        if told + 1 < rng.randint(1, ABOUT):
            open_ones.append((aggregate, told + 1))
        earlier, chance = rng.choice(made[-200:]), rng.random()
        if chance < AGAIN:
            yield record("again", *earlier)
        elif chance < AGAIN + CONFLICT:
            yield record("conflict", *earlier, to=NOBODY)
        elif chance < AGAIN + CONFLICT + POISON:
            yield record("poison", *earlier, **rng.choice([{"to": "no address"}, {"to": 7}, {"subject": None}]))


def record(kind: str, aggregate: str, number: int, **wrong: object) -> tuple[dict[str, Any], Message]:
    """What the journal says of it, and the record; the subject is the key, by which the mail is known again."""
    key = f"{aggregate}/{number}"
    mail = {"to": f"{aggregate}@example.com", "subject": key, "text": f"This is number {number}.\n", **wrong}
    envelope = {
        "channel": "email", "event_type": "case.changed", "aggregate": aggregate,
        "idempotency_key": key if kind != "poison" else f"{key}/{sorted(wrong.items())}", "payload": mail,
    }  # fmt: skip
    line = {"kind": kind, "aggregate": aggregate, "number": number, "name": key}
    return line, Message(TOPIC, aggregate.encode(), json.dumps(envelope).encode())


if __name__ == "__main__":
    main()
