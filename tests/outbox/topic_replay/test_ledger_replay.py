"""`replay_topic` on the stock topics: a lost day comes back exactly, and nothing counts twice."""

import threading
from datetime import timedelta

import msgspec
import pytest
from django.db.models import F, Sum

from buffer.ledger import topics
from buffer.ledger.flow import Ledger
from buffer.ledger.statements import NAME as LEDGER
from buffer.models import InventoryStock, InventoryTracking
from buffer.workers import track
from config.database.clock import database_now
from outbox.bookkeeping import counters
from tests.outbox.topic_replay.conftest import DAY, prefixed

pytestmark = pytest.mark.django_db(transaction=True)
NAME, MOVED = "PAYMENT_SUCCESS", "MATERIAL_TRANSFERRED"


@pytest.fixture(autouse=True)
def _stocks(db, settings, make_topic):
    settings.LEDGER_UNKNOWN_STOCK = "create"
    settings.MOVEMENTS = {name: path for name, path in settings.MOVEMENTS.items() if name in (NAME, MOVED)}
    topics.sources.cache_clear()  # the prefix is this test's own
    make_topic(NAME, 2)
    make_topic(MOVED)
    yield
    assert [check for check in Ledger().verify() if not check.ok] == []
    topics.sources.cache_clear()


@pytest.fixture
def pay(produce):
    """Payments of one partition: (hour, sale order, {stock: quantity})."""

    def put(*payments, partition=0):
        produce(*[(DAY + timedelta(hours=hour), payment(sale, items)) for hour, sale, items in payments],
                partition=partition, name=prefixed(NAME))  # fmt: skip

    return put


def payment(sale, items):
    lines = [{"stockId": stock, "quantity": quantity} for stock, quantity in items.items()]
    return msgspec.json.encode({"saleOrderId": sale, "merchantId": "M", "items": lines})


def read_everything():
    track(threading.Event(), once=True)


def ledger():
    rows = InventoryTracking.objects.values_list(
        "reference_id", "stock_id", "delta", "source_partition", "source_offset"
    )
    return sorted(rows), sorted(InventoryStock.objects.values_list("pk", "quantity"))


@pytest.fixture
def days(pay):
    """Two days of sales over two partitions, some of them repeated, one unreadable."""
    pay(
        *[(hour, f"SO-{hour}", {"ST-1": 1, "ST-2": hour + 1}) for hour in range(0, 48, 3)],
        (20, "SO-18", {"ST-1": 1, "ST-2": 19}),
    )
    pay(*[(hour, f"SB-{hour}", {"ST-2": 2}) for hour in range(0, 48, 4)], partition=1)
    pay((12, "SX", {}), partition=1)
    read_everything()


def test_a_day_that_was_lost_is_restored_exactly(days, replay):
    before = ledger()
    start, end = (int((DAY + timedelta(days=days_)).timestamp() * 1000) for days_ in (0, 1))
    lost = InventoryTracking.objects.filter(source_timestamp__gte=start, source_timestamp__lt=end)
    number = lost.count()
    for stock, total in list(lost.values_list("stock_id").annotate(total=Sum("delta")).order_by()):
        InventoryStock.objects.filter(pk=stock).update(quantity=F("quantity") - total)
    lost.delete()
    assert ledger() != before
    rehearsal = replay(name=NAME, dry_run=True)
    assert rehearsal["applied"] == 14
    assert replay(name=NAME) == rehearsal
    assert ledger() == before
    assert number == 8 * 2 + 6
    assert replay(name=NAME)["applied"] == 0


@pytest.mark.parametrize("policy", ["allow", "park"])
def test_a_rehearsal_foresees_exactly_what_will_happen(pay, replay, settings, policy):
    """Repeats in later batches, contradictions, and stocks that run out on the way."""
    settings.KAFKA_POLL_BYTES = 1  # every record a batch of its own
    settings.LEDGER_NEGATIVE_STOCK = policy
    InventoryStock.objects.create(id="ST-1")
    InventoryTracking.objects.create(reference_type="OPENING", reference_id="ST-1", stock_id="ST-1", delta=5,
                                     created_at=DAY)  # fmt: skip
    InventoryStock.objects.update(quantity=5)
    pay(*[(hour, f"SO-{hour}", {"ST-1": 2}) for hour in range(5)], (6, "SO-1", {"ST-1": 2}), (7, "SO-1", {"ST-1": 9}))
    rehearsal = replay(name=NAME, dry_run=True)
    assert InventoryTracking.objects.count() == 1
    assert replay(name=NAME) == rehearsal
    # parked: what contradicts, and with "park" every sale after the second.
    assert (rehearsal["applied"], rehearsal["parked"]) == ((5, 1) if policy == "allow" else (2, 4))
    again = replay(name=NAME)
    assert (again["applied"], again["parked"]) == (0, 0)
    counters.add({(LEDGER, "test", "movements"): 1}, database_now())  # the opening, made by hand


def test_a_rehearsal_follows_what_a_transfer_depends_on(produce, replay, settings):
    """A to B needs what X to A brought, and B to C what A to B brought: none of them stands in the database."""
    settings.KAFKA_POLL_BYTES = 1
    settings.LEDGER_NEGATIVE_STOCK = "park"
    InventoryStock.objects.create(id="X", quantity=5)
    InventoryTracking.objects.create(reference_type="OPENING", reference_id="X", stock_id="X", delta=5, created_at=DAY)
    produce(*[
        (DAY + timedelta(hours=hour), msgspec.json.encode(
            {"transferId": f"T{hour}", "fromStockId": start, "toStockId": end, "quantity": quantity}))
        for hour, (start, end, quantity) in enumerate([("X", "A", 5), ("A", "B", 5), ("B", "C", 3), ("B", "C", 3)])
    ], name=prefixed(MOVED))  # fmt: skip
    rehearsal = replay(name=MOVED, dry_run=True)
    assert (rehearsal["applied"], rehearsal["parked"]) == (3, 1)
    assert replay(name=MOVED) == rehearsal
    counters.add({(LEDGER, "test", "movements"): 1}, database_now())
