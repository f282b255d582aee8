"""`verify --flow ledger`: holds after everything that may happen, and finds what must not."""

from __future__ import annotations

from itertools import islice
from unittest.mock import ANY

import pytest
from django.db.models import F

from buffer.ledger.flow import Ledger, stock_traffic
from buffer.ledger.stocktake import adjust_stock
from buffer.models import InventoryStock, InventoryTracking
from config.admin.levers import Operator
from config.database.clock import database_now
from config.flows import prove
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import FlowCounter, Watermark
from outbox.bookkeeping.progress import Trends
from outbox.letters.burial import AlarmedWatermarks
from outbox.letters.levers import pull
from outbox.letters.models import DeadLetter
from tests.buffer.ledger.conftest import (
    MOVED,
    PAID,
    ledger,
    letters,
    moved,
    paid,
    quantities,
    record,
    stocks,
    sums,
    write,
)

pytestmark = pytest.mark.django_db
ME = Operator("tester")


def failing() -> list[str]:
    return [check.name.partition(": ")[2] or check.name for check in Ledger().verify() if not check.ok]


@pytest.fixture
def busy():
    stocks(A=10, B=0)
    write(record(paid("S1", A=1)), record(moved("T1", "A", "B", 2)), record((PAID, b"{")), record(paid("S1", A=1)))
    adjust_stock("B", counted=1, adjustment_id="take", operator=ME, reason="counted")


def test_it_holds(busy):
    assert failing() == []
    assert prove("ledger")["ok"]


SUMS = "the movements of every stock sum up to its quantity"
WATERMARK = "every partition that was read has its watermark"
BY_HAND = {
    "a quantity that is not the sum": (
        lambda: InventoryStock.objects.filter(pk="A").update(quantity=F("quantity") + 1),
        {SUMS: [{"stock": "A", "quantity": 8, "sum of movements": 7}]}),
    "movements without a stock": (
        lambda: InventoryStock.objects.filter(pk="A").delete(),
        {SUMS: [{"stock": "A", "quantity": 0, "sum of movements": 7}]}),
    "half a transfer, and so a missing row": (
        lambda: (
            InventoryTracking.objects.filter(reference_type="TRANSFER", stock_id="B").delete(),
            InventoryStock.objects.filter(pk="B").update(quantity=F("quantity") - 2)),
        {"every transfer has two ends that cancel out": [{"reference_id": "T1", "ends": 1, "total": -2}],
         "rows = movements counted": ANY}),
    "a record without an outcome": (
        lambda: FlowCounter.objects.filter(flow="ledger", name="parked").update(value=0),
        {"read + replayed = applied + duplicate + skipped + parked": ANY}),
    "a deleted watermark": (
        lambda: Watermark.objects.filter(topic=MOVED).delete(), {WATERMARK: [{"topic": MOVED, "partition": 0}]}),
}  # fmt: skip


@pytest.mark.parametrize("what", BY_HAND)
def test_it_finds_what_was_changed_by_hand(busy, what):
    act, named = BY_HAND[what]
    act()
    found = {check.name.partition(": ")[2]: list(check.rows) for check in Ledger().verify() if not check.ok}
    assert found == named


def test_a_topic_that_is_no_longer_read_needs_no_watermark(busy, settings):
    Watermark.objects.filter(topic=MOVED).delete()
    settings.MOVEMENTS = {name: path for name, path in settings.MOVEMENTS.items() if name != MOVED}
    assert failing() == []


def test_deleted_rows_that_a_replay_puts_back_are_right_again():
    stocks(A=10)
    first = record(paid("S1", A=1))
    write(first)
    InventoryTracking.objects.of_reference("SALE_ORDER", "S1").delete()
    InventoryStock.objects.update(quantity=10)
    assert failing() == ["rows = movements counted"]
    assert write(first, revision=1).number("applied") == 1
    assert quantities() == {"A": 9} == sums()
    assert failing() == []


# -- dead letters ------------------------------------------------------------------------------------
def send_back(reason: str) -> str:
    letter = DeadLetter.objects.open().get(reason=reason)
    result = pull("requeue", [letter.pk], ME, "try again")
    assert result.acted + len(result.failed) == 1
    return DeadLetter.objects.get(pk=letter.pk).note


def test_a_letter_applies_once_its_stock_is_known():
    write(record(paid("S1", A=1)))
    assert "failed again: stock A is not known" in send_back("unknown_stock")
    stocks(A=0)
    assert send_back("unknown_stock") == "recorded: SALE_ORDER S1, stock A: -1"
    assert quantities() == {"A": -1} == sums()
    assert not DeadLetter.objects.open().exists()
    assert failing() == []


def test_a_letter_whose_effect_came_otherwise_changes_nothing():
    write(record(paid("S1", A=1)))
    stocks(A=5)
    write(record(paid("S1", A=1)))
    assert send_back("unknown_stock") == "recorded: SALE_ORDER S1, stock A: -1"
    assert quantities() == {"A": 4}
    assert failing() == []


def test_a_letter_of_a_stopped_partition_is_no_record(busy):
    for _ in range(2):
        AlarmedWatermarks("ledger").stop("buffer-track", {(PAID, 3): "the topic was created again"}, database_now())
    assert letters() == ["invalid_json", "partition_stopped"]
    letter = DeadLetter.objects.get(reason="partition_stopped")
    assert pull("requeue", [letter.pk], ME, "try").refused[0][1].startswith("a stopped partition")
    assert failing() == []


def test_letters_that_are_read_again_are_repeats():
    stocks(A=1)
    poison, unknown = record((PAID, b"{")), record(paid("S9", B=1))
    write(poison, unknown)
    again = write(poison, unknown)
    assert (again.parked, again.number("parked"), again.number("duplicate")) == (0, 0, 2)
    assert Trends(database_now(), ["ledger"]).in_last_hour("parked", "late") == 2
    assert failing() == []


# -- home --------------------------------------------------------------------------------------------
def test_home_draws_the_ledger(busy, settings):
    now = database_now()
    picture = Ledger().home_row(now)
    assert [stage.name for stage in picture.stages] == [f"{len(settings.MOVEMENTS)} stock topics", "Track", "Ledger"]
    assert (picture.letters_open, len(picture.needs)) == (1, 1)
    assert picture.stages[2].value == str(len(ledger()))
    assert list(Ledger().gauges(now))
    assert Ledger().is_drained()


def test_sample_traffic_adds_up(policy):
    policy(unknown_stock="create")
    traffic = stock_traffic(1)
    for _ in range(5):
        write(*[record((sample.topic, sample.value)) for sample in islice(traffic, 300)])
    totals = counters.totals("ledger")
    assert totals["read"] == 1500
    assert min(totals[name] for name in ("applied", "duplicate", "skipped", "parked")) > 0
    assert quantities() == sums()
    assert failing() == []
