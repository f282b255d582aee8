"""Merchants and product variants: locations and items follow them, and only forwards."""

from __future__ import annotations

import pytest

from buffer.models import InventoryItem, InventoryLocation
from tests.buffer.ledger.conftest import MERCHANTS, VARIANTS, outcomes, record, write

pytestmark = pytest.mark.django_db


def change(operation, key, merchant="M1"):
    row = {"id": key, "merchant_id": merchant}
    before, after = (row, None) if operation == "d" else (None, row)
    return VARIANTS, {"op": operation, "before": before, "after": after}


def merchant(operation, key):
    return MERCHANTS, change(operation, key)[1]


def items():
    return {item.pk: (item.merchant_id, item.active) for item in InventoryItem.objects.all()}


def test_a_merchant_has_one_default_location_however_often_it_changes():
    write(record(merchant("c", "M1")), record(merchant("u", "M1")), record(merchant("r", "M2")))
    write(record(merchant("u", "M1")))
    found = InventoryLocation.objects.values_list("merchant_id", "name", "is_default", "active")
    assert sorted(found) == [("M1", "default", True, True), ("M2", "default", True, True)]


def test_a_deleted_merchant_keeps_its_location_inactive():
    write(record(merchant("c", "M1")))
    write(record(merchant("d", "M1")), record((MERCHANTS, None)))
    assert not InventoryLocation.objects.get().active
    write(record(merchant("c", "M1")))
    assert InventoryLocation.objects.get().active


def test_a_variant_is_an_item_that_follows_its_changes():
    write(record(change("c", "V1")), record(change("c", "V2")))
    write(record(change("u", "V1", "M9")), record(change("d", "V2")))
    assert items() == {"V1": ("M9", True), "V2": ("M1", False)}


@pytest.mark.parametrize("same_batch", [True, False])
@pytest.mark.parametrize("merchant", [None, ""])
def test_a_delete_that_names_only_the_key_keeps_the_merchant(same_batch, merchant):
    found = [record(change("c", "V1")), record(change("u", "V1", "M2")), record(change("d", "V1", merchant))]
    for part in [found] if same_batch else [[one] for one in found]:
        write(*part)
    assert items() == {"V1": ("M2", False)}
    write(record(change("u", "V1", None)))
    assert items() == {"V1": ("", True)}


@pytest.mark.parametrize("same_batch", [True, False])
def test_an_update_that_does_not_say_the_merchant_keeps_it(same_batch):
    """A TOASTed column that the update left alone: PostgreSQL does not write it into its log again."""
    unsaid = record(change("u", "V1", "__debezium_unavailable_value"))
    found = [record(change("c", "V1", "M2")), record(change("c", "V2", "M3")), unsaid]
    for part in [found] if same_batch else [[one] for one in found]:
        write(*part)
    assert items() == {"V1": ("M2", True), "V2": ("M3", True)}
    write(record(change("d", "V1", "")), record(change("u", "V1", "__debezium_unavailable_value")))
    assert items()["V1"] == ("M2", True)
    write(record(change("u", "V1", "M4")), unsaid)
    assert items()["V1"] == ("M4", True)


def test_an_item_whose_merchant_nobody_has_said_has_none():
    write(record(change("u", "V1", "__debezium_unavailable_value")))
    assert items() == {"V1": ("", True)}


@pytest.mark.parametrize("same_batch", [True, False])
def test_an_older_change_does_not_undo_a_newer_one(same_batch):
    newer = [record(change("d", "V1"), offset=9), record(merchant("d", "M1"), offset=9)]
    older = [record(change("u", "V1", "M9"), offset=8), record(merchant("u", "M1"), offset=8)]
    for found in [[*newer, *older]] if same_batch else [newer, older]:
        write(*found)
    assert items() == {"V1": ("M1", False)}
    assert not InventoryLocation.objects.get().active


def test_between_partitions_and_incarnations_the_timestamp_decides():
    write(record(change("u", "V1", "new"), offset=5, timestamp=2000))
    write(record(change("u", "V1", "old"), offset=99, timestamp=1000, partition=1))
    assert items() == {"V1": ("new", True)}
    write(record(change("u", "V1", "newest"), offset=0, timestamp=3000), topic_id="created again")
    assert items() == {"V1": ("newest", True)}


def test_changes_are_counted_as_applied_repeated_or_skipped():
    first = record(change("c", "V1"))
    assert outcomes(write(first, record((VARIANTS, None)))) == {
        "applied": 1, "duplicate": 0, "skipped": 1, "parked": 0,
    }  # fmt: skip
    assert outcomes(write(first))["duplicate"] == 1
    assert outcomes(write(record(change("u", "V1")), record(change("u", "V1"))))["duplicate"] == 1
