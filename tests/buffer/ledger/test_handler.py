"""The ledger's handler: every effect once, a record wholly or not at all, policies, positions."""

from __future__ import annotations

import pytest

from buffer.ledger import handler as track
from buffer.ledger import statements as record_module
from buffer.ledger.batch import Prepared, Tracked
from buffer.ledger.flow import Ledger
from buffer.ledger.handler import Track
from buffer.ledger.topics import Movements
from buffer.models import InventoryStock, InventoryTracking
from config.database.clock import database_now
from outbox.bookkeeping import counters
from outbox.groups.models import FailureGroup
from outbox.letters.models import DeadLetter
from tests.buffer.ledger.conftest import (
    PAID,
    batch_of,
    cooked,
    ledger,
    letters,
    lines,
    moved,
    outcomes,
    paid,
    quantities,
    received,
    record,
    stocks,
    sums,
    write,
)

pytestmark = pytest.mark.django_db


def test_each_topic_moves_stock_its_way():
    stocks(A=0, B=0, C=0)
    applied = write(
        record(received("P1", A=10, B=5)), record(paid("S1", A=2)), record(cooked("K1", B=1, C=1)),
        record(moved("T1", "A", "C", 3)),
    )  # fmt: skip
    assert quantities() == {"A": 5, "B": 4, "C": 2} == sums()
    assert ledger() == {
        ("PURCHASE_ORDER", "P1", "A"): 10, ("PURCHASE_ORDER", "P1", "B"): 5, ("SALE_ORDER", "S1", "A"): -2,
        ("KITCHEN_TICKET_ITEM", "K1", "B"): -1, ("KITCHEN_TICKET_ITEM", "K1", "C"): -1,
        ("TRANSFER", "T1", "A"): -3, ("TRANSFER", "T1", "C"): 3,
    }  # fmt: skip
    assert outcomes(applied) == {"applied": 4, "duplicate": 0, "skipped": 0, "parked": 0}


def test_a_row_knows_where_it_came_from():
    stocks(A=0)
    write(record(paid("S1", A=2), offset=77, partition=3, timestamp=1234))
    row = InventoryTracking.objects.get()
    assert (row.topic, row.source_partition, row.source_offset, row.source_timestamp) == (PAID, 3, 77, 1234)
    assert row.topic_id
    assert row.payload_hash


def test_a_redelivery_changes_nothing_in_the_same_batch_or_later():
    stocks(A=10)
    first, again = record(paid("S1", A=2)), record(paid("S1", A=2))
    assert outcomes(write(first, again))["duplicate"] == 1
    assert outcomes(write(first, again))["duplicate"] == 2
    assert quantities() == {"A": 8} == sums()
    assert letters() == []


def test_what_a_record_has_more_than_what_is_known_is_added():
    stocks(A=10, B=10)
    write(record(paid("S1", A=2)))
    assert outcomes(write(record(paid("S1", A=2, B=3))))["applied"] == 1
    assert outcomes(write(record(paid("S1", B=3))))["duplicate"] == 1
    assert quantities() == {"A": 8, "B": 7} == sums()


def test_a_stock_that_is_named_twice_moves_by_the_sum():
    stocks(A=10)
    message = paid("S1", A=2)
    message[1]["items"] *= 3
    write(record(message))
    assert quantities() == {"A": 4} == sums()


def test_partial_receipts_are_told_apart():
    stocks(A=0)
    write(*[record(received("P1", receipt, A=1)) for receipt in ("R1", "R2", None, "R1")])
    assert quantities() == {"A": 3}
    assert {reference for _, reference, _ in ledger()} == {"P1/R1", "P1/R2", "P1"}


@pytest.mark.parametrize("status", ["PREPARING", "done", "CANCELLED"])
def test_only_a_done_item_uses_material(status):
    stocks(A=10)
    assert outcomes(write(record(cooked("K1", status, A=1))))["skipped"] == 1
    assert quantities() == {"A": 10}
    assert outcomes(write(record(cooked("K1", "DONE", A=1))))["applied"] == 1


def test_a_done_item_must_say_what_it_used():
    topic, value = cooked("K1")
    assert outcomes(write(record((topic, value))))["skipped"] == 1
    del value["materials"]
    assert outcomes(write(record((topic, {**value, "status": "PREPARING"}))))["skipped"] == 1
    assert outcomes(write(record((topic, value))))["parked"] == 1


@pytest.mark.parametrize("same_batch", [True, False])
def test_another_quantity_under_a_known_key_is_a_letter_and_nothing_of_it_applies(same_batch):
    stocks(A=10, B=10)
    first, other = record(paid("S1", A=2)), record(paid("S1", A=3, B=1))
    batches = [[first, other]] if same_batch else [[first], [other]]
    applied = [write(*batch) for batch in batches][-1]
    assert outcomes(applied)["parked"] == 1
    assert letters() == ["conflicting_effect"]
    assert DeadLetter.objects.get().business_key == "S1"
    assert quantities() == {"A": 8, "B": 10} == sums()


def test_a_parked_record_makes_nothing_known():
    """Its key B is free: the record behind it takes it with another quantity."""
    stocks(A=10, B=10)
    write(record(paid("S1", A=2)))
    applied = write(record(paid("S1", A=3, B=1)), record(paid("S1", B=4)))
    assert outcomes(applied) == {"applied": 1, "duplicate": 0, "skipped": 0, "parked": 1}
    assert quantities() == {"A": 8, "B": 6} == sums()


def test_the_other_records_of_a_batch_with_a_conflict_apply():
    stocks(A=10, B=10)
    write(record(paid("S1", A=2)))
    applied = write(record(paid("S0", A=1)), record(paid("S1", A=9)), record(paid("S2", B=1)))
    assert outcomes(applied) == {"applied": 2, "duplicate": 0, "skipped": 0, "parked": 1}
    assert quantities() == {"A": 7, "B": 9} == sums()


def test_the_same_position_with_another_payload_is_never_skipped():
    stocks(A=10)
    write(record(paid("S1", A=2), offset=5))
    changed = paid("S1", A=2)
    changed[1]["note"] = "another payload"
    assert outcomes(write(record(changed, offset=5)))["parked"] == 1
    assert letters() == ["position_conflict"]
    assert outcomes(write(record(changed, offset=6)))["duplicate"] == 1
    # A recreated topic, or a letter that somebody sends back: another record at that offset is no alarm.
    assert outcomes(write(record(changed, offset=5), topic_id="another"))["duplicate"] == 1
    assert outcomes(write(record(changed, offset=5), revision=1))["duplicate"] == 1


def test_the_offsets_of_a_recreated_topic_are_not_taken_for_redeliveries():
    stocks(A=10)
    write(record(paid("S1", A=2), offset=0))
    assert outcomes(write(record(paid("S2", A=2), offset=0), topic_id="another"))["applied"] == 1
    assert quantities() == {"A": 6}


# -- policies ----------------------------------------------------------------------------------------
def test_an_unknown_stock_is_parked_with_its_whole_record():
    stocks(A=10)
    applied = write(record(moved("T1", "A", "new", 4)), record(paid("S1", A=1)))
    assert outcomes(applied) == {"applied": 1, "duplicate": 0, "skipped": 0, "parked": 1}
    assert quantities() == {"A": 9} == sums()
    assert letters() == ["unknown_stock"]


def test_an_unknown_stock_is_created_where_that_is_the_policy(policy):
    policy(unknown_stock="create")
    write(record(moved("T1", "old", "new", 4)))
    assert quantities() == {"old": -4, "new": 4} == sums()


def test_a_record_that_would_make_a_stock_negative_is_parked_where_that_is_the_policy(policy):
    policy(negative_stock="park")
    stocks(A=5, B=0)
    applied = write(
        record(paid("S1", A=4)), record(moved("T1", "A", "B", 2)), record(received("P1", A=1)),
        record(moved("T2", "A", "B", 2)), record(paid("S1", A=4)),
    )  # fmt: skip
    assert outcomes(applied) == {"applied": 3, "duplicate": 1, "skipped": 0, "parked": 1}
    assert quantities() == {"A": 0, "B": 2} == sums()
    assert letters() == ["negative_stock"]


def test_what_is_negative_already_may_grow(policy):
    stocks(A=1)
    write(record(paid("S1", A=4)))
    policy(negative_stock="park")
    assert outcomes(write(record(received("P1", A=1))))["applied"] == 1
    assert quantities() == {"A": -2}


def test_equal_ends_are_parked_or_skipped(policy):
    stocks(A=1)
    assert outcomes(write(record(moved("T1", "A", "A", 4))))["parked"] == 1
    policy(equal_ends="skip")
    assert outcomes(write(record(moved("T2", "A", "A", 4))))["skipped"] == 1
    assert letters() == ["equal_ends"]
    assert quantities() == {"A": 1}


@pytest.mark.parametrize("quantity", [0, -1, 1.5, "3", None, True, 2**53, 10**30])
def test_a_quantity_that_is_no_positive_integer_is_a_letter(quantity):
    stocks(A=1)
    assert outcomes(write(record(paid("S1", A=quantity))))["parked"] == 1
    assert letters() == ["wrong_field"]
    assert quantities() == {"A": 1}


@pytest.mark.parametrize(
    ("message", "reference"),
    [
        (paid("S1", A=0), "S1"),
        (received("P/1", A=0), "P~11"),
        (received("P1", "R1", A=0), "P1/R1"),
        (received("p" * 150, "r" * 150, A=1), f"{'p' * 150}/{'r' * 49}"),
        (cooked("K1", "DONE", A=0), "K1"),
        (moved("T1", "A", "A", 4), "T1"),
        ((paid("S1")[0], {"purchaseOrderId": None, "items": []}), ""),
        ((paid("S1")[0], b"{not json"), ""),
    ],
)
def test_a_refused_record_is_found_by_the_reference_that_it_names(message, reference):
    write(record(message))
    assert DeadLetter.objects.get().business_key == reference


def test_identifiers_compare_bytes():
    names = ["s-a", "S-A", "s-á", "s-a "]
    stocks(**dict.fromkeys(names, 0))
    write(*[record(paid(reference, **{stock: 1})) for reference in names for stock in names])
    assert quantities() == dict.fromkeys(names, -4)
    assert len(ledger()) == 16


# -- counts ------------------------------------------------------------------------------------------
def test_every_record_is_counted_once():
    stocks(A=10)
    write(
        record(paid("S1", A=1), partition=3), record(paid("S1", A=1), partition=3), record(cooked("K1", "NEW", A=1)),
        record((PAID, b"{"), partition=3), record(moved("T1", "A", "?", 1)), record(paid("S2", A=1), partition=3),
    )  # fmt: skip
    scopes = counters.by_scope("ledger")
    assert scopes[f"{PAID}/3"] == {"read": 4, "applied": 2, "duplicate": 1, "parked": 1, "movements": 2}
    assert scopes["MATERIAL_TRANSFERRED/0"] == {"read": 1, "parked": 1}
    assert scopes["KITCHEN_TICKET_ITEM_STATUS_CHANGED/0"] == {"read": 1, "skipped": 1}


def test_a_parked_record_is_buried_once_however_often_it_comes():
    stocks(A=10)
    poison = record((PAID, b"{"))
    assert [write(poison).parked, write(poison).parked] == [1, 0]
    assert DeadLetter.objects.count() == 1


def test_a_stock_that_went_away_is_noticed_with_the_next_beat():
    stocks(A=10)
    handler = Track()
    write(record(paid("S1", A=1)), handler=handler)
    InventoryStock.objects.all().delete()
    assert handler.pressure() is False
    assert outcomes(write(record(paid("S2", A=1)), handler=handler))["parked"] == 1


def test_a_replay_tells_what_it_changed():
    stocks(A=10)
    first, second = record(paid("S1", A=1)), record(paid("S2", A=1))
    write(first)
    handler = Track()
    batch = batch_of(first, second, record(moved("T1", "A", "?", 1)), revision=1, handler=handler)
    batch.from_log = True
    handler.write(batch, database_now())
    assert (batch.tally.applied, batch.tally.parked, batch.tally.outside) == (1, 1, 0)
    assert batch.tally.changed == {("SALE_ORDER", "S2"): [second]}
    assert set(batch.tally.changed) <= set(handler.keys_of(batch))


def test_a_key_that_another_worker_records_meanwhile_is_found(policy, monkeypatch):
    """Between the look at the ledger and the insert: the first look sees nothing."""
    stocks(A=10)
    first = record(paid("S1", A=1))
    write(first)
    policy(negative_stock="park")
    looks = [{}]
    monkeypatch.setattr(track, "read_known", lambda *query: looks.pop() if looks else record_module.read_known(*query))
    found = outcomes(write(first, record(paid("S2", A=2))))
    assert (found["duplicate"], found["applied"]) == (1, 1)
    assert not looks
    assert quantities() == {"A": 7} == sums()


# -- the two ends of a transfer cancel out, whatever comes under its id ------------------------------
@pytest.mark.parametrize("same_batch", [True, False])
@pytest.mark.parametrize("ends", [("A", "C"), ("C", "B"), ("C", "D")])
def test_a_transfer_that_comes_again_with_another_end_moves_nothing(same_batch, ends):
    stocks(A=100, B=100, C=100, D=100)
    first, second = record(moved("T1", "A", "B", 5)), record(moved("T1", *ends, 5))
    if same_batch:
        write(first, second)
    else:
        write(first)
        write(second)
    assert quantities() == {"A": 95, "B": 105, "C": 100, "D": 100}
    assert letters() == ["conflicting_effect"]
    assert all(check.ok for check in Ledger().verify())


def test_a_whole_movement_that_names_fewer_stocks_in_the_same_batch_is_looked_at_one_by_one():
    prepared = Prepared()
    for deltas in ({"A": -2, "B": 1, "C": 1}, {"A": -2, "B": 1}):
        assert not prepared.contradicts
        prepared.add(Tracked(record(("stock", b"{}")), Movements("SPLIT", "1", deltas, whole=True), 0))
    assert prepared.contradicts


def test_of_a_transfer_whose_one_end_was_lost_the_other_is_restored():
    stocks(A=100, B=100)
    found = record(moved("T1", "A", "B", 5))
    write(found)
    InventoryTracking.objects.filter(reference_id="T1", stock_id="B").delete()
    InventoryStock.objects.filter(pk="B").update(quantity=100)
    write(found, revision=1)
    assert quantities() == {"A": 95, "B": 105}
    assert not letters()


# -- letters by cause ----------------------------------------------------------------------------------
def test_unknown_stocks_are_one_group_whatever_they_are_called():
    names = ["ACME", "BOLT", "is not", "known", "“A”", 'A "quoted" one', "stock", "x"]
    write(*[record(paid(f"S{number}", **{name: 1})) for number, name in enumerate(names)])
    group = FailureGroup.objects.get()
    assert group.open_count == len(names)
    assert group.title == "Unknown stock: stock … is not known: import it, or set LEDGER_UNKNOWN_STOCK=create"
    assert {
        name for name in names if f"stock {name} is" in " ".join(DeadLetter.objects.values_list("error", flat=True))
    }


def test_quantities_beyond_a_column_are_one_group():
    most = 2**31 - 1
    for number, name in enumerate(["ACME", "BOLT"]):
        write(record(("PAYMENT_SUCCESS", {"saleOrderId": f"S{number}", "merchantId": "M", "items": [
            *lines(**{name: most}), *lines(**{name: most})]})))  # fmt: skip
    assert FailureGroup.objects.get().open_count == 2
