"""A replay batch from its request to the last letter, of the ledger and of ingestion, by one worker; and one that is held."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction
from django.test import override_settings

from config.admin.levers import Operator
from config.database.clock import database_now
from config.kafka import RecordBatch, Replayed, topic_name
from outbox.letters.filters import Filter
from outbox.letters.models import DeadLetter
from outbox.replay_batches import requests
from outbox.replay_batches.models import ReplayBatch
from outbox.replay_batches.run import Steps
from tests.bench.leg import Plan
from tests.bench.outbox import holds

LETTERS = 100_000
STOCKS = 200
CHUNK = 500  # records of a transaction in which letters are buried
TOPIC_ID = "11111111-2222-3333-4444-555555555555"
PLACES = 300
OLD = timedelta(days=75)  # outside of what the buffer keeps for one month
WHO, REASON = Operator("bench"), "the cause is mended"


def rows(plan: Plan) -> list[dict[str, str]]:
    number = LETTERS // 5 if plan.quick else LETTERS
    return [measure("ledger", payments, number), measure("transfer-requests", old_orders, number)]


def measure(source: str, bury: Callable[[int], None], number: int) -> dict[str, str]:
    bury(number + holds.LETTERS)
    lasting = holds.held(source)
    number = DeadLetter.objects.open().filter(source=source).count()
    steps = Steps()
    started = time.perf_counter()
    batch = requests.draft("requeue", Filter(source=source), WHO, token=steps.token)
    asked = time.perf_counter() - started
    counted, _ = until(batch, steps, lambda: batch.state == "previewed")
    if batch.eligible != number:
        raise RuntimeError(f"{batch.eligible} of {number} letters: {batch.skipped_why}")
    requests.confirm(batch.pk, WHO, REASON, typed=str(number), canary=0)
    ReplayBatch.objects.filter(pk=batch.pk).update(hold_until=database_now())
    took, busy = until(batch, steps, lambda: batch.started_at and not batch.eligible)
    if batch.requeued + batch.verified != number:
        raise RuntimeError(f"{batch.state}: {batch.note}")
    return {
        "letters": f"{number:,} of {source}", "request": f"{1000 * asked:.0f} ms", "preview": f"{counted:.1f} s",
        "taken back": f"{number / took:,.0f}/s", "of its own time": f"{number / busy:,.0f}/s",
        **lasting,
    }  # fmt: skip


def until(batch: ReplayBatch, steps: Steps, over: Callable[[], Any]) -> tuple[float, float]:
    """Seconds, and seconds of this process, that the worker took."""
    started, busy = time.perf_counter(), time.process_time()
    while not over():
        time.sleep(min(0.1, steps.take(batch.pk)))
        batch.refresh_from_db()
        if batch.state in ("stopped", "cancelled"):
            raise RuntimeError(batch.note)
    return time.perf_counter() - started, time.process_time() - busy


def payments(number: int) -> None:
    """Of stocks that were not known."""
    from buffer.ledger.handler import Track
    from buffer.models import InventoryStock

    def sale(n: int) -> bytes:
        items = b'[{"stockId": "ST-%d", "quantity": 1}, {"stockId": "ST-%d", "quantity": 2}]'
        return b'{"saleOrderId": "S%d", "merchantId": "M", "items": %b}' % (n, items % (n % STOCKS, (n + 7) % STOCKS))

    handle(Track(), "PAYMENT_SUCCESS", map(sale, range(number)))
    InventoryStock.objects.bulk_create(InventoryStock(id=f"ST-{n}") for n in range(STOCKS))


def old_orders(number: int) -> None:
    """Of a month that the buffer keeps by now."""
    from buffer.ingest.handler import Ingest
    from buffer.streams import streams
    from tests.conftest import order

    stream = streams()["transfer-requests"]
    at = (datetime.now(UTC) - OLD).isoformat(timespec="seconds")
    with override_settings(BUFFER_RETENTION_MONTHS=1):
        handle(Ingest(stream), stream.topic, (order(f"A{n}", f"WH-{n % PLACES}", at=at) for n in range(number)))


def handle(handler: Any, topic: str, values: Iterable[bytes]) -> None:
    name = topic_name(topic)
    records = [Replayed(name, n % 4, n, 1_700_000_000_000 + n, b"k", value) for n, value in enumerate(values)]
    for start in range(0, len(records), CHUNK):
        batch = RecordBatch(records[start : start + CHUNK], {name: TOPIC_ID})
        batch.prepared = handler.prepare(batch)
        with transaction.atomic():
            handler.write(batch, database_now())
