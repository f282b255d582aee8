"""Promising mails: what an order's write costs with the outbox and without, and how soon a message leaves."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.db import transaction

from config.database.clock import database_now
from config.fields import uuid7, uuid7_after
from notifications.orders import changes
from notifications.orders.models import Order
from outbox.messages.publish import publish
from tests.bench import databases, worker
from tests.bench.events import paced
from tests.bench.figures import at, number
from tests.bench.leg import Plan
from tests.bench.outbox.outbox import ATTEMPT, MESSAGE, NOOP, empty
from tests.crash.wire import wait_for

RATE = 167
IN_TURN = 20
PAYLOAD = {"text": "x" * 480}


def rows(plan: Plan) -> list[dict[str, str]]:
    seconds = 5 if plan.quick else 15
    settings.HANDLERS = {**settings.HANDLERS, "noop": "tests.bench.outbox.noop.Noop"}
    late = sorted(to_send(seconds))
    writes = sorted(paying(seconds))
    with_it, without = alternating(seconds)
    return [{
        "commit → send p50, ms": number(at(late, 0.5)), "p99, ms": number(at(late, 0.99)),
        "order write p50, ms": number(at(writes, 0.5)), "p99, ms ": number(at(writes, 0.99)),
        "with outbox, ms": number(with_it), "without, ms": number(without),
        "overhead": f"{100 * (with_it / without - 1):.0f} %",
    }]  # fmt: skip


def at_rate(seconds: float, work: Callable[[int], None]) -> None:
    for turn in paced(RATE, int(RATE * seconds)):
        work(turn)


def to_send(seconds: float) -> list[float]:
    """Milliseconds from the moment a transaction writes its message to the call that sends it, by the database's clock."""
    empty()

    def promise(turn: int) -> None:
        with transaction.atomic():
            publish("order.paid", f"order:{turn}", PAYLOAD, idempotency_key=uuid7().hex, channel="noop")

    with worker.running("relay_outbox", "--channel", "noop", **NOOP):
        at_rate(2, promise)
        wait_until_sent()
        databases.execute(f"DELETE FROM {ATTEMPT}")
        at_rate(seconds, promise)
        wait_until_sent()
    found = databases.rows(
        f"SELECT m.created_at, a.started_at FROM {ATTEMPT} a JOIN {MESSAGE} m ON m.id = a.message_id"
    )
    return [(started - created).total_seconds() * 1000 for created, started in found]


def wait_until_sent() -> None:
    unsent = f"SELECT COUNT(*) FROM {MESSAGE} WHERE state <> 'sent'"
    wait_for(lambda: databases.rows(unsent) == [(0,)], 120, "the relay to come to an end", 0.1)


def pending_orders(count: int) -> list[Any]:
    now = database_now()
    return [
        order.pk
        for order in Order.objects.bulk_create([
            Order(user_email=f"u{n}@example.com", total_amount=1000, currency="EUR", created_at=now, updated_at=now)
            for n in range(count)
        ], batch_size=1000)
    ]  # fmt: skip


def paying(seconds: float) -> list[float]:
    """Milliseconds of `pay` at the seed's peak: read, render, one transaction, woken relay."""
    orders, times = pending_orders(int(RATE * seconds)), []

    def pay(turn: int) -> None:
        started = time.perf_counter()
        changes.change(orders[turn], "pay")
        times.append((time.perf_counter() - started) * 1000)

    at_rate(seconds, pay)
    return times


def no_message(*_: Any, row: Any, after: Any = None, **__: Any) -> None:
    """In the place of `publish`: what an application without an outbox does with the row."""
    row.message_id = uuid7_after(after)
    row.save(force_insert=True)


def alternating(seconds: float) -> tuple[float, float]:
    """Milliseconds of a change with its message and of the same change without, in turn at the seed's peak; medians.

    Twenty of a kind at a time: what a message costs its process beside the call (the ring) would else meet the
    change without.
    """
    orders = pending_orders(int(RATE * seconds))
    times: dict[bool, list[float]] = {True: [], False: []}
    genuine = changes.publish

    def pay(turn: int) -> None:
        promised = turn // IN_TURN % 2 == 0
        changes.publish = genuine if promised else no_message
        started = time.perf_counter()
        changes.change(orders[turn], "pay")
        times[promised].append((time.perf_counter() - started) * 1000)

    try:
        at_rate(seconds, pay)
    finally:
        changes.publish = genuine
    return statistics.median(times[True]), statistics.median(times[False])
