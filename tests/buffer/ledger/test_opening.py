"""Opening stock from a file, and corrections after a stocktake: movements like any other."""

from __future__ import annotations

import io

import pytest
from django.core.management import CommandError, call_command

from buffer.ledger import stocktake
from buffer.ledger.stocktake import adjust_stock
from buffer.models import InventoryItem, InventoryLocation, InventoryStock, InventoryTracking
from config.admin.levers import Operator
from config.letters import Refusal
from outbox.audit_log.models import OperatorAction
from tests.buffer.ledger.conftest import ledger, paid, quantities, record, stocks, sums, write

pytestmark = pytest.mark.django_db
ME = Operator("tester")


@pytest.fixture
def load(tmp_path):
    """Import lines and return what was said."""

    def run(*lines: str, head: str = "stock_id,item,location,quantity", **options) -> str:
        path = tmp_path / "stock.csv"
        path.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8-sig")
        said = io.StringIO()
        call_command("import_stock", str(path), stdout=said, stderr=said, **options)
        return said.getvalue()

    return run


def test_a_file_opens_stocks_and_the_ledger_knows(load):
    assert "2 stocks opened, 0 were there" in load("S1,V1,Kitchen,7", "S2,V1,,0")
    assert quantities() == {"S1": 7, "S2": 0}
    assert ledger() == {("OPENING", "S1", "S1"): 7, ("OPENING", "S2", "S2"): 0}
    stock = InventoryStock.objects.select_related("item", "location").get(pk="S1")
    assert (stock.item.pk, stock.location.name) == ("V1", "Kitchen")
    assert InventoryStock.objects.get(pk="S2").location is None
    assert (InventoryItem.objects.count(), InventoryLocation.objects.count()) == (1, 1)


def test_the_same_file_again_changes_nothing(load):
    load("S1,V1,Kitchen,7")
    write(record(paid("O1", S1=2)))
    assert "0 stocks opened, 1 were there" in load("S1,V1,Kitchen,7")
    assert quantities() == {"S1": 5} == sums()


def test_a_file_that_opens_a_known_stock_elsewhere_is_refused(load):
    load("S1,V1,Kitchen,7")
    for line in ("S1,V2,Kitchen,7", "S1,V1,Bar,7", "S1,V1,,7"):
        with pytest.raises(CommandError):
            load(line)
    InventoryTracking.objects.update(payload_hash=0)  # as the last release opened it
    assert "0 stocks opened, 1 were there" in load("S1,V2,Kitchen,7")


def test_a_dry_run_changes_nothing(load):
    assert "1 stocks would be opened" in load("S1,V1,Kitchen,7", dry_run=True)
    assert (quantities(), InventoryItem.objects.count()) == ({}, 0)


def test_stock_that_moved_before_it_was_opened_keeps_its_movements(load, policy):
    policy(unknown_stock="create")
    write(record(paid("O1", S1=2)))
    load("S1,V1,Kitchen,7")
    assert quantities() == {"S1": 5} == sums()


def test_a_changed_opening_quantity_is_refused_with_its_line_and_nothing_else_is_imported(load, capsys):
    load("S1,V1,Kitchen,7")
    with pytest.raises(CommandError, match="1 lines are refused"):
        load("S2,V1,Kitchen,1", "S1,V1,Kitchen,8")
    assert quantities() == {"S1": 7}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("S1,V1,K", "3 cells instead of 4"), ("S1,V1,K,-1", "'-1' is no whole number"), ("S1,V1,K,x", "'x' is no whole"),
        ("S1,V1,K,1.5", "no whole number"), (",V1,K,1", "stock_id: empty"), ("S0,V1,K,1", "stands in line 2 already"),
        ("S1,V1,K,99999999999999999999", "no whole number"), (f"S1,V1,K,{'1' * 5000}", "no whole number"), (f"S1,{'v' * 201},K,1", "item: longer than 200"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named_and_the_file_changes_nothing(tmp_path, line, reason):
    path = tmp_path / "stock.csv"
    path.write_text(f"stock_id,item,location,quantity\nS0,V1,K,1\n{line}\n")
    found = stocktake.import_stock(path, dry_run=False, say=lambda text: None)
    assert [f"line 3: {reason}"[:8] + "…" for _ in found.refused] == ["line 3: …"]
    assert reason in found.refused[0]
    assert quantities() == {}


@pytest.mark.parametrize("head", ["", "stock,item,location,quantity", "S1,V1,K,1"])
def test_a_file_without_its_header_is_refused(load, head):
    with pytest.raises(CommandError, match="first line must be"):
        load("S1,V1,K,1", head=head)


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(CommandError, match="No such file"):
        call_command("import_stock", str(tmp_path / "none.csv"))


def test_a_big_file_goes_in_chunks(load, monkeypatch):
    monkeypatch.setattr(stocktake, "CHUNK", 10)
    said = load(*[f"S{n},V{n % 3},L{n % 4},{n}" for n in range(25)])
    assert said.splitlines()[:3] == ["10 of 25 lines", "20 of 25 lines", "25 of 25 lines"]
    assert sum(quantities().values()) == sum(range(25)) == sum(sums().values())


# -- adjustments -------------------------------------------------------------------------------------
def test_a_stocktake_sets_the_quantity_and_leaves_a_movement_and_an_operator_action():
    stocks(A=10)
    done = adjust_stock("A", counted=7, adjustment_id="take-1", operator=ME, reason="counted twice")
    assert (done.delta, done.quantity, done.known) == (-3, 7, False)
    assert quantities() == {"A": 7} == sums()
    action = OperatorAction.objects.get()
    assert (action.verb, action.reason, action.result) == ("adjust_stock", "counted twice", "-3, now 7")


def test_the_same_adjustment_again_changes_nothing():
    stocks(A=10)
    for known in (False, True):
        done = adjust_stock("A", counted=14, adjustment_id="take-1", operator=ME, reason="found some")
        assert (done.quantity, done.known) == (14, known)
    with pytest.raises(Refusal, match=r"made already: \+4 of A"):
        adjust_stock("A", counted=15, adjustment_id="take-1", operator=ME, reason="found more")
    assert OperatorAction.objects.count() == 1


def test_one_of_the_oldest_is_known_by_its_id_and_its_stock():
    stocks(A=10, B=10)
    adjust_stock("A", counted=14, adjustment_id="take-1", operator=ME, reason="found some")
    InventoryTracking.objects.filter(reference_id="take-1").update(payload_hash=0)
    assert adjust_stock("A", counted=14, adjustment_id="take-1", operator=ME, reason="found some").known
    with pytest.raises(Refusal, match="made already"):
        adjust_stock("B", counted=14, adjustment_id="take-1", operator=ME, reason="found some")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"counted": -1}, "counted: -1"), ({"counted": 2**53}, "counted: "), ({"reason": " "}, "reason"),
        ({"stock_id": "?"}, "not known"), ({"adjustment_id": ""}, "adjustment_id"),
    ],
)  # fmt: skip
def test_an_adjustment_that_makes_no_sense_is_refused(options, reason):
    stocks(A=10)
    given = {"stock_id": "A", "counted": 1, "adjustment_id": "x", "operator": ME, "reason": "because", **options}
    with pytest.raises(Refusal, match=reason):
        adjust_stock(given.pop("stock_id"), **given)
    assert not InventoryTracking.objects.of_reference("ADJUSTMENT", "x").exists()
