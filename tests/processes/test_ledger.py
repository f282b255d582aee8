"""The ledger's worker: killed between any two statements, cut off during its COMMIT, and a small crash run."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.models import Sum

from buffer.models import InventoryStock, InventoryTracking
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import Watermark
from outbox.letters.models import DeadLetter
from tests.crash.platform import Platform
from tests.crash.run import Plan
from tests.crash.stock.run import PARTITIONS, TIMINGS, Run, StockWire
from tests.crash.stock.traffic import PAID, Message, moved, paid
from tests.crash.wire import wait_for
from tests.processes.conftest import assert_verified, database_url
from tests.processes.proxy import Cutter

PLAN = Plan(orders=3000, warehouses=200, kills=2, seed=20_261_121, evict=True)
SMALL = {"KAFKA_POLL_RECORDS": "20"}  # so that a life has more than one batch before it


@pytest.fixture
def wire(settings: Any) -> Iterator[StockWire]:
    servers = os.environ.get("TEST_KAFKA_SERVERS", "")
    if not servers:
        pytest.skip("TEST_KAFKA_SERVERS names no Apache Kafka")
    settings.KAFKA_TOPIC_PREFIX = prefix = f"p{uuid.uuid4().hex[:8]}."
    found = StockWire(servers, prefix)
    for topic in found.inputs:
        found.create(topic, PARTITIONS)
    yield found
    found.close()
    found.delete(*found.inputs)


@pytest.fixture
def workers(transactional_db: None, wire: StockWire, tmp_path: Path) -> Iterator[Platform]:
    environment = {
        **TIMINGS, "KAFKA_BOOTSTRAP_SERVERS": wire.servers, "KAFKA_TOPIC_PREFIX": wire.prefix,
        "DATABASE_URL": database_url(),
    }  # fmt: skip
    with Platform(tmp_path, environment) as platform:
        yield platform


@pytest.fixture
def stocks(transactional_db: None) -> None:
    InventoryStock.objects.bulk_create(InventoryStock(id=name) for name in "AB")


def wave(number: int) -> list[Message]:
    """Ten payments and ten transfers, some of them again, a contradiction, and a record that is none."""
    sold = [paid(f"S{number}-{n}", [("A", 1), ("B", 2)]) for n in range(10)]
    sent = [moved(f"T{number}-{n}", "A", "B", 5) for n in range(10)]
    poison = Message(PAID, b"poison", b"{poison %d" % number)
    return [*sold, *sent, *sold[:3], sent[0], paid(f"S{number}-1", [("A", 7)]), poison]


def state() -> tuple[Any, ...]:
    """What has been committed: movements, stocks, letters, counts."""
    return (
        sorted(InventoryTracking.objects.values_list("reference_id", "stock_id", "delta")),
        dict(InventoryStock.objects.values_list("pk", "quantity")),
        sorted(bytes(letter.payload or b"") for letter in DeadLetter.objects.all()),
        counters.totals("ledger"),
    )


def written() -> int:
    """How many records there are in the database; the broker's own figure lags behind where nobody writes."""
    return sum(Watermark.objects.values_list("next_offset", flat=True))


def assert_whole(waves: int) -> None:
    """Every movement once, every stock their sum, two letters a wave."""
    movements, quantities, letters, _ = state()
    sums = InventoryTracking.objects.values_list("stock_id").annotate(total=Sum("delta")).order_by()
    assert quantities == dict(sums) == {"A": -60 * waves, "B": 30 * waves}
    assert len(movements) == 40 * waves
    assert len(letters) == 2 * waves


@pytest.mark.usefixtures("stocks")
def test_a_worker_that_dies_between_any_two_statements_leaves_both_or_neither(
    wire: StockWire, workers: Platform
) -> None:
    for number, point in enumerate(["recorded", "adjusted", "buried", "counted", "written", "stored"]):
        wire.produce(wave(number))
        before = state()
        program = ["-m", "tests.processes.saboteur", point, "kill", "track_inventory"]
        # With one writer it is known that nothing else was going on.
        assert workers.launch(program, point, {**SMALL, "KAFKA_WRITERS": "1"}).end(40) == -9
        wire.evict()
        assert (state() == before) is (point != "stored")
    worker = workers.start("track_inventory")
    wait_for(lambda: written() == 6 * len(wave(0)), 40, "every record to be written")
    assert worker.stop() == 0
    assert_whole(6)
    assert_verified()


def read_again() -> int:
    return counters.totals("ledger")["read"] - len(wave(0))


@pytest.mark.usefixtures("stocks")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_connection_that_is_cut_during_the_commit_changes_nothing_in_the_result(
    wire: StockWire, workers: Platform, moment: str
) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no connection that could be cut")
    quote = connection.ops.quote_name(InventoryTracking._meta.db_table).encode()
    wire.produce(wave(0))
    with closing(Cutter(database_url(), b"INSERT INTO " + quote, moment)) as cutter:
        worker = workers.start("track_inventory", DATABASE_URL=cutter.url)
        wait_for(lambda: "database_unavailable" in worker.text, 40, "the worker to notice")
        wait_for(lambda: written() == len(wave(0)), 40, "every record to be written")
        assert cutter.cuts == 1
        # Told to stop before it is back, it would leave what it does not know to the next one.
        wait_for(lambda: moment == "before" or read_again() > 0, 40, "the batch that was committed to be read again")
        assert worker.stop() == 0
    assert_whole(1)
    assert (read_again() > 0) is (moment == "after"), "the cut came at another moment"
    assert_verified()


def test_killed_and_rebalanced_workers_count_every_effect_once(
    wire: StockWire, workers: Platform, pairs: range
) -> None:
    outcome = Run(workers, wire, PLAN, len(pairs), print).go()
    print(*outcome.findings, outcome.figures, sep="\n")
    assert [finding.name for finding in outcome.findings if not finding.ok] == []
