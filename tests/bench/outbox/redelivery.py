"""python -m tests.bench.outbox.redelivery URL …: letters taken back, a chunk a transaction, beside one letter a transaction."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import django

from tests.bench import databases

LETTERS = 4000
ALONE = 60  # letters that are taken back one by one
CHUNK = 500
STOCKS = 200
TOPIC_ID = "11111111-2222-3333-4444-555555555555"


def main(urls: Sequence[str]) -> None:
    for url in urls:
        with databases.fresh_database(url, f"bench_{os.getpid()}") as address:
            environment = {**os.environ, "DATABASE_URL": address, "DJANGO_SETTINGS_MODULE": "config.settings"}
            environment |= {"LOG_LEVEL": "ERROR", "LOG_FORMAT": "console"}
            subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], env=environment, check=True)
            subprocess.run([sys.executable, "-m", "tests.bench.outbox.redelivery"], env=environment, check=True)


def leg() -> None:
    """Measure on the database of this process."""
    django.setup()
    for name, bury in (("ledger", bury_movements), ("ingest", bury_orders)):
        bury()
        (alone, _), (chunked, busy), looked = measure()
        times = f"{chunked / alone:.1f} times one by one ({alone:.0f}/s)"
        share = f"{busy:.0f} a second of this process's own time"
        print(f"{databases.server()}  {name}: {chunked:.0f} letters/s ({share}), {times}; looked after: {looked:.0f}/s")


def measure() -> tuple[tuple[float, float], tuple[float, float], float]:
    """Letters per second, and per second of this process: one a transaction, 500 a transaction; and looked after."""
    from config.admin.levers import Operator
    from config.database.clock import database_now
    from outbox.letters import levers, redelivery
    from outbox.letters.models import DeadLetter

    ids = list(DeadLetter.objects.open().order_by("pk").values_list("pk", flat=True))
    alone = rate(ids[:ALONE], lambda part: levers.pull("requeue", part, Operator("bench"), "bench"), ALONE)
    chunked = rate(ids[ALONE:], take_back, CHUNK)
    DeadLetter.objects.filter(status="resolved").update(status="requeued")
    started = time.perf_counter()
    redelivery.look_after(database_now())
    DeadLetter.objects.update(status="resolved")
    return alone, chunked, len(ids) / (time.perf_counter() - started)


def take_back(ids: Sequence[Any]) -> None:
    from django.db import transaction

    from config.database.clock import database_now
    from outbox.letters import redelivery
    from outbox.letters.models import DeadLetter

    with transaction.atomic():
        found = redelivery.take_back(list(DeadLetter.objects.filter(pk__in=ids)), database_now())
    states = {effect.state for effect in found.values()}
    if len(found) != len(ids) or not states <= {"waiting", "resolved"}:
        raise RuntimeError(f"{len(found)} of {len(ids)} letters: {states}")


def rate(ids: Sequence[Any], action: Callable[[Sequence[Any]], object], size: int) -> tuple[float, float]:
    started, busy = time.perf_counter(), time.process_time()
    for start in range(0, len(ids), size):
        action(ids[start : start + size])
    return len(ids) / (time.perf_counter() - started), len(ids) / (time.process_time() - busy)


def bury_movements() -> None:
    """Letters of sales whose stocks were not known."""
    from buffer.ledger.handler import Track
    from buffer.models import InventoryStock

    def sale(n: int) -> bytes:
        items = b'[{"stockId": "ST-%d", "quantity": 1}, {"stockId": "ST-%d", "quantity": 2}]'
        return b'{"saleOrderId": "S%d", "merchantId": "M", "items": %b}' % (n, items % (n % STOCKS, (n + 7) % STOCKS))

    handle(Track(), "PAYMENT_SUCCESS", map(sale, range(LETTERS)))
    InventoryStock.objects.bulk_create(InventoryStock(id=f"ST-{n}") for n in range(STOCKS))


def bury_orders() -> None:
    """Letters of orders whose bytes were refused, and are right now."""
    from buffer.ingest.handler import Ingest
    from buffer.streams import streams
    from outbox.letters.models import DeadLetter
    from tests.conftest import order

    stream = streams()["transfer-requests"]
    handle(Ingest(stream), stream.topic, (b"{%d" % n for n in range(LETTERS)))
    letters = list(DeadLetter.objects.open().order_by("offset").only("pk"))
    for n, letter in enumerate(letters):
        letter.payload = order(f"A{n}", f"WH-{n % 300}")
    DeadLetter.objects.bulk_update(letters, ["payload"], batch_size=500)


def handle(handler: Any, topic: str, values: Iterable[bytes]) -> None:
    from django.db import transaction

    from config.database.clock import database_now
    from config.kafka import RecordBatch, Replayed, topic_name

    name = topic_name(topic)
    records = [Replayed(name, n % 4, n, 1_700_000_000_000 + n, b"k", value) for n, value in enumerate(values)]
    for start in range(0, len(records), CHUNK):
        batch = RecordBatch(records[start : start + CHUNK], {name: TOPIC_ID})
        batch.prepared = handler.prepare(batch)
        with transaction.atomic():
            handler.write(batch, database_now())


if __name__ == "__main__":
    main(sys.argv[1:]) if sys.argv[1:] else leg()
