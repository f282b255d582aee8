"""A transfer moves between its two ends and no third: they cancel out whatever comes under its id."""

from __future__ import annotations

import pytest

from buffer.ledger.flow import Ledger
from buffer.models import InventoryStock, InventoryTracking
from tests.buffer.ledger.conftest import letters, moved, quantities, record, stocks, write

pytestmark = pytest.mark.django_db


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


def test_of_a_transfer_whose_one_end_was_lost_the_other_is_restored():
    stocks(A=100, B=100)
    found = record(moved("T1", "A", "B", 5))
    write(found)
    InventoryTracking.objects.filter(reference_id="T1", stock_id="B").delete()
    InventoryStock.objects.filter(pk="B").update(quantity=100)
    write(found, revision=1)
    assert quantities() == {"A": 95, "B": 105}
    assert not letters()
