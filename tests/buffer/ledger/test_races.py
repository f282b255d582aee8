"""Races with real connections and a barrier, and crashes at every statement, on whichever database runs this."""

from __future__ import annotations

import random
from functools import partial

import pytest
from django.db import OperationalError, connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from buffer.ledger.flow import Ledger
from buffer.ledger.handler import Track
from buffer.ledger.models import LARGEST
from buffer.ledger.stocktake import adjust_stock, import_stock
from buffer.models import InventoryStock
from config.admin.levers import Operator
from config.database.clock import database_now
from config.kafka.consumer.writer import Writer
from outbox.bookkeeping.models import Watermark
from outbox.bookkeeping.watermarks import Watermarks
from outbox.letters.models import DeadLetter
from tests.buffer.ledger.conftest import (
    batch_of,
    cooked,
    ledger,
    letters,
    moved,
    paid,
    quantities,
    received,
    record,
    stocks,
    sums,
    write,
)
from tests.outbox.race import race, until_it_stands

pytestmark = pytest.mark.django_db(transaction=True)
ME = Operator("race")
NAMES = [f"ST{n}" for n in range(12)]


@pytest.fixture(autouse=True)
def _everything_adds_up(transactional_db):
    yield
    assert [check for check in Ledger().verify() if not check.ok] == []
    assert quantities() == {**dict.fromkeys(quantities(), 0), **sums()}


def traffic(seed: int, number: int = 150) -> list:
    rng = random.Random(seed)
    made = [
        paid(f"{seed}-{n}", **dict.fromkeys(rng.sample(NAMES, 3), 1))
        if n % 2
        else moved(f"{seed}-{n}", *rng.sample(NAMES, 2), 5)
        for n in range(number)
    ]
    return [record(message, partition=seed) for message in made]


def work(found: list) -> None:
    """One worker: a handler of its own, batch after batch, each again until it stands."""
    handler = Track()
    for start in range(0, len(found), 25):
        until_it_stands(partial(write, *found[start : start + 25], handler=handler))


@pytest.mark.parametrize("negative", ["allow", "park"])
def test_workers_at_the_same_stocks_lose_no_update(policy, negative):
    stocks(**dict.fromkeys(NAMES, 10_000))
    policy(negative_stock=negative)
    crowds = [traffic(seed) for seed in (1, 2, 3)]
    race(*[lambda crowd=crowd: work(crowd) for crowd in crowds])
    expected = sum(1 if row[0] == "SALE_ORDER" else 0 for row in ledger())
    assert sum(quantities().values()) == 10_000 * len(NAMES) - expected
    assert len(ledger()) == len(NAMES) + 3 * (75 * 3 + 75 * 2)


def test_the_same_records_at_two_workers_count_once():
    """As after a rebalance: a zombie finishes the batch that its successor reads again."""
    stocks(**dict.fromkeys(NAMES, 100))
    found = traffic(1)
    before = len(ledger())
    race(lambda: work(found), lambda: work(found), lambda: work(list(reversed(found))))
    assert len(ledger()) - before == 75 * 3 + 75 * 2
    assert letters() == []


def test_two_quantities_for_one_key_at_two_workers_apply_one_of_them_wholly():
    stocks(**dict.fromkeys(NAMES, 100))
    ones = [record(paid(f"S{n}", ST0=1, ST1=1), partition=1) for n in range(40)]
    twos = [record(paid(f"S{n}", ST1=2, ST2=2), partition=2) for n in range(40)]
    race(lambda: work(ones), lambda: work(twos))
    assert letters() == ["conflicting_effect"] * 40
    for n in range(40):
        mine = {stock: delta for (_, name, stock), delta in ledger().items() if name == f"S{n}"}
        assert mine in ({"ST0": -1, "ST1": -1}, {"ST1": -2, "ST2": -2})


def test_a_stock_never_becomes_negative_at_two_workers(policy):
    stocks(ST0=30, ST1=0)
    policy(negative_stock="park")
    crowds = [[record(paid(f"{seed}-{n}", ST0=1), partition=seed) for n in range(40)] for seed in (1, 2)]
    race(*[lambda crowd=crowd: work(crowd) for crowd in crowds])
    assert quantities()["ST0"] == 0
    assert letters() == ["negative_stock"] * 50


def test_a_stocktake_beside_a_worker_is_exact():
    stocks(ST0=1000, ST1=0)
    sold = [record(paid(f"S{n}", ST0=1)) for n in range(60)]
    done = race(
        lambda: work(sold),
        lambda: adjust_stock("ST0", counted=5000, adjustment_id="take", operator=ME, reason="counted"),
    )
    after = [row for row in ledger() if row[0] == "ADJUSTMENT"]
    assert len(after) == 1
    assert quantities()["ST0"] == 1000 - 60 + done[1].delta


def test_two_imports_of_one_file_open_each_stock_once(tmp_path):
    path = tmp_path / "stock.csv"
    lines = [f"ST{n},V{n % 7},L{n % 3},{n}" for n in range(300)]
    path.write_text("\n".join(["stock_id,item,location,quantity", *lines]))
    found = race(*[lambda: import_stock(path, dry_run=False, say=lambda text: None)] * 2)
    assert sum(one.opened for one in found) == 300
    assert quantities() == {f"ST{n}": n for n in range(300)}


# -- crashes -----------------------------------------------------------------------------------------
class Broken(Exception):
    pass


def messages() -> list:
    return [
        record(received("P1", A=5, B=5)), record(paid("S1", A=1)), record(moved("T1", "A", "B", 2)),
        record(cooked("K1", B=1)), record((paid("S2", A=1)[0], b"{")), record(paid("S0", A=1)),
        record(("merchant-cdc", {"id": "M1"})), record(("product-variant-cdc", {"id": "V1"})),
    ]  # fmt: skip


def store(batch) -> None:
    """As the writer's thread does, in this one."""
    writer = Writer(Track(), Watermarks(), "buffer-track")
    writer.close()
    writer._abandon.clear()
    writer._store(batch)


def state() -> tuple:
    return ledger(), quantities(), letters(), sorted(Watermark.objects.values_list("topic", "next_offset"))


@pytest.mark.parametrize("path", ["fast", "classified"])
def test_a_crash_at_any_statement_leaves_both_or_neither(path):
    """Break before the n-th statement of the batch, for every n; then let it through."""
    stocks(A=10, B=10)
    write(record(paid("S0", A=2 if path == "classified" else 1)))
    found = messages()
    empty = state()
    statements = 0
    while True:
        left = statements

        def breaking(execute, sql, params, many, context):
            nonlocal left
            if left == 0:
                raise Broken
            left -= 1
            return execute(sql, params, many, context)

        try:
            with transaction.atomic(), connection.execute_wrapper(breaking):
                batch = batch_of(*found)
                Track().write(batch, database_now())
                Watermarks().advance("buffer-track", batch.marks, database_now())
        except Broken:
            assert state() == empty
            statements += 1
            continue
        break
    assert statements > 8
    assert quantities() == {"A": 10 if path == "classified" else 11, "B": 16} == sums()
    assert state() != empty


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_unknown_commit_changes_nothing_in_the_result(moment, monkeypatch):
    """The connection is cut during COMMIT, and the writer runs the whole batch again."""
    stocks(A=10, B=10)
    lost = []
    original = BaseDatabaseWrapper._commit

    def commit(self):
        if lost:
            return original(self)
        lost.append(moment)
        if moment == "after":
            original(self)
        else:
            self._rollback()
        raise OperationalError(2013, "server closed the connection unexpectedly")

    batch = batch_of(*messages())
    monkeypatch.setattr(BaseDatabaseWrapper, "_commit", commit)
    store(batch)
    assert lost == [moment]
    assert quantities() == {"A": 11, "B": 16} == sums()
    assert letters() == ["invalid_json"]
    store(batch)
    assert quantities() == {"A": 11, "B": 16} == sums()


def test_one_record_that_the_database_refuses_is_parked_alone():
    """Close to the end of the range: the check of the column refuses, before any database overflows."""
    stocks(A=10, B=10)
    InventoryStock.objects.filter(pk="A").update(quantity=LARGEST - 1)
    writer = Writer(Track(), Watermarks(), "buffer-track")
    writer.close()
    writer._abandon.clear()
    writer._store(batch_of(record(received("P1", B=1)), record(received("P2", A=5)), record(received("P3", B=1))))
    assert list(DeadLetter.objects.values_list("reason", "business_key")) == [("database_refused", "P2")]
    assert quantities() == {"A": LARGEST - 1, "B": 12}
    InventoryStock.objects.filter(pk="A").update(quantity=10)
