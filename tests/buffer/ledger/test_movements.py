"""From bytes to effects: pure, so tried with everything."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buffer.ledger import topics
from buffer.ledger.flow import stock_traffic
from buffer.ledger.handler import Track
from buffer.ledger.topics import (
    LARGEST_DELTA,
    Merchant,
    Movements,
    Source,
    Variant,
    part_of,
    sources,
    summed,
    transferred,
)
from config.gate import InvalidRecord
from tests.buffer.ledger.conftest import (
    MERCHANTS,
    MOVED,
    PAID,
    RECEIVED,
    VARIANTS,
    batch_of,
    cooked,
    moved,
    paid,
    received,
    record,
)

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=60)
quantities = st.integers(1, 2**53 - 1)
ROW = {"id": "V1", "merchant_id": "M1"}


def effect(topic, value):
    source = sources()[topic]
    raw = value if isinstance(value, bytes) else msgspec.json.encode(value)
    return source.effect(source.gate.decode(raw))


@given(names, st.lists(st.tuples(names, st.integers(1, 10**9)), min_size=1, max_size=20))
def test_sales_and_receipts_are_opposite_and_summed(order, lines):
    items = [{"stockId": stock, "quantity": quantity} for stock, quantity in lines]
    sold = effect(PAID, {"saleOrderId": order, "merchantId": 7, "items": items})
    bought = effect(RECEIVED, {"purchaseOrderId": order, "items": items})
    assert sold.deltas == {stock: -delta for stock, delta in bought.deltas.items()}
    assert sum(bought.deltas.values()) == sum(quantity for _, quantity in lines)
    assert set(sold.deltas) == {stock for stock, _ in lines}


@given(names, names, names, quantities)
def test_a_transfer_cancels_out(transfer, source, target, quantity):
    message = moved(transfer, source, target, quantity)[1]
    if source == target:
        with pytest.raises(InvalidRecord):
            effect(MOVED, message)
        return
    assert effect(MOVED, message) == Movements("TRANSFER", transfer, {source: -quantity, target: quantity}, whole=True)


@given(names, st.none() | names, names, st.none() | names)
def test_no_two_receipts_share_a_reference(order, receipt, other, other_receipt):
    same = (order, receipt) == (other, other_receipt)
    assert (part_of(order, receipt) == part_of(other, other_receipt)) is same


@pytest.mark.parametrize(
    ("order", "receipt", "reference"),
    [("P1", None, "P1"), ("P1", "R1", "P1/R1"), ("a/b", None, "a~1b"), ("a", "b/c", "a/b/c"), ("a~1b", None, "a~01b")],
)
def test_receipts_read_as_one_would_write_them(order, receipt, reference):
    assert part_of(order, receipt) == reference


def test_a_reference_that_fits_no_column_is_refused():
    with pytest.raises(InvalidRecord, match="longer than 200"):
        topics.received(topics.Receipt("p" * 150, [], "r" * 150))


def test_a_sum_out_of_range_is_refused():
    with pytest.raises(InvalidRecord, match="sum up beyond"):
        summed([("A", -LARGEST_DELTA), ("A", -1)])


@pytest.mark.parametrize(
    "message",
    [
        paid("", A=1), paid("S1"), paid("x" * 201, A=1), received("P1", "", A=1), moved("T", "A", "", 1),
        (PAID, {"saleOrderId": "S1", "items": [{"stockId": "A", "quantity": 1}]}), (PAID, [1]), (PAID, None),
        (PAID, b"{"), (PAID, b'{"saleOrderId": "a\\u0000"}'), cooked("K1", "DONE", A=0), (MERCHANTS, []),
        (MERCHANTS, {"op": "u", "after": None}), (VARIANTS, {"merchant_id": "M"}), (MERCHANTS, {"op": "d", "before": None}),
        (VARIANTS, {"schema": {}, "payload": 7}),
    ],
)  # fmt: skip
def test_whatever_is_no_message_is_a_letter_and_never_an_exception(message):
    prepared = batch_of(record(message)).prepared
    assert len(prepared.letters) == 1
    assert not prepared.tracked


@given(st.binary(max_size=200))
def test_any_bytes_have_one_outcome(value):
    for topic in Track().topics:
        prepared = batch_of(record((topic, value))).prepared
        assert len(prepared.letters) + len(prepared.tracked) + len(prepared.changes) + prepared.skipped.total() == 1


# -- changes -----------------------------------------------------------------------------------------
def shapes(operation, row):
    """The four ways in which Debezium is set up to say the same."""
    before, after = (row, None) if operation == "d" else (None, row)
    envelope = {"op": operation, "before": before, "after": after, "ts_ms": 1}
    flat = {**row, "__op": operation, "__deleted": "true" if operation == "d" else "false"}
    return [value for plain in (envelope, flat) for value in (plain, {"schema": {"type": "struct"}, "payload": plain})]


@pytest.mark.parametrize("operation", ["c", "u", "r", "d"])
def test_a_change_is_the_same_in_every_shape(operation):
    active = operation != "d"
    for shape in shapes(operation, ROW):
        assert effect(VARIANTS, shape) == Variant("V1", "M1", active)
        assert effect(MERCHANTS, shape) == Merchant("V1", active)


def test_keys_may_be_numbers_and_an_unwrapped_row_may_be_bare():
    assert effect(VARIANTS, {"id": 7, "merchant_id": 12, "title": "x"}) == Variant("7", "12", True)
    assert effect(VARIANTS, {"id": 7}) == Variant("7", "", True)


def test_a_change_may_come_in_a_bare_payload_and_a_delete_may_name_its_row_in_either_place():
    assert effect(VARIANTS, {"payload": {"op": "u", "after": ROW}}) == Variant("V1", "M1", True)
    assert effect(MERCHANTS, {"op": "d", "after": ROW}) == Merchant("V1", False)
    assert effect(VARIANTS, {**ROW, "payload": {"id": "other"}}) == Variant("V1", "M1", True)


def test_a_merchant_that_the_connector_did_not_send_is_left_open(settings):
    placeholder = settings.DEBEZIUM_UNAVAILABLE_VALUE
    for shape in shapes("u", {"id": "V1", "merchant_id": placeholder}):
        assert effect(VARIANTS, shape) == Variant("V1", None, True)
    settings.DEBEZIUM_UNAVAILABLE_VALUE = "gone"
    assert effect(VARIANTS, {"id": "V1", "merchant_id": "gone"}) == Variant("V1", None, True)
    assert effect(VARIANTS, {"id": "V1", "merchant_id": placeholder}) == Variant("V1", placeholder, True)


@pytest.mark.parametrize("merchant", [None, "", 0, "0"])
def test_a_delete_that_names_only_its_key_leaves_the_merchant_open(merchant):
    """PostgreSQL's default replica identity: the connector fills the rest with null, or with zeros where null may not be."""
    assert effect(VARIANTS, {"op": "d", "before": {"id": 7, "merchant_id": merchant}}) == Variant("7", None, False)


def test_numbers_are_read_by_their_schema_and_refused_without():
    type_ = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "0"}}
    row = {"id": "AQ==", "merchant_id": "Ag=="}
    schema = {"fields": [{**type_, "field": "id"}, {**type_, "field": "merchant_id"}]}
    flat = {"schema": schema, "payload": row}
    assert effect(VARIANTS, flat) == Variant("1", "2", True)
    assert effect(MERCHANTS, flat) == Merchant("1", True)
    prepared = batch_of(record((VARIANTS, row)), record((MERCHANTS, row))).prepared
    assert [letter.reason for letter in prepared.letters] == ["wrong_field"] * 2
    assert "decimal.handling.mode=string" in prepared.letters[0].error


@pytest.mark.parametrize(
    "value",
    [{"op": "x", "after": {"id": "V1"}}, {"id": "__debezium_unavailable_value"}, {"id": True}, {"id": None}, {"id": ""},
     {"id": "V1", "merchant_id": "x" * 201}, {"id": "V1", "merchant_id": [1]}, {"op": "c", "after": [1]},
     {"op": None, "after": {"id": "V1"}}, {"op": "x"}, {"op": "d", "before": None},
     {"op": "c", "after": {"id": 2**64}}, b'{"op": "c", "after": {"id": 1' + b"0" * 300 + b"}}"],
)  # fmt: skip
def test_a_change_that_cannot_be_understood_is_a_letter_on_every_database(value):
    prepared = batch_of(record((VARIANTS, value))).prepared
    assert [letter.reason for letter in prepared.letters] == ["wrong_field"]


@pytest.mark.parametrize(
    "value",
    [None, {"schema": {}, "payload": None}, {"op": "t", "before": None, "after": None}, {"op": "m", "after": None},
     {"op": "m", "message": {"prefix": "x"}}],
)  # fmt: skip
def test_what_names_no_row_is_skipped(value):
    prepared = batch_of(record((VARIANTS, value))).prepared
    assert prepared.skipped.total() == 1
    assert not prepared.letters


# -- the registry ------------------------------------------------------------------------------------
def test_the_message_type_comes_from_the_annotation():
    assert not Source.of("MATERIAL_TRANSFERRED", "buffer.ledger.topics.transferred").tombstones
    assert Source.of("merchant-cdc", "buffer.ledger.topics.merchant").tombstones
    assert sources()[MOVED].effect is transferred
    assert sources()[MERCHANTS].effect is topics.merchant


def test_samples_are_the_same_for_the_same_seed_and_mostly_good():
    first, again = stock_traffic(3), stock_traffic(3)
    found = [next(first) for _ in range(1000)]
    assert found == [next(again) for _ in range(1000)]
    topics = {sample.topic for sample in found}
    assert len(topics) == 6  # topics of your own have no samples
    assert topics <= set(Track().topics)
    prepared = batch_of(*[record((sample.topic, sample.value)) for sample in found]).prepared
    assert 0 < len(prepared.letters) < 30
