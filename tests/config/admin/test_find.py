"""The search field: any key, straight to the one hit."""

import pytest

from buffer.events.models import Batch, BufferedEvent
from buffer.ledger.models import InventoryTracking
from config.admin import lists
from config.gate import InvalidRecord
from config.kafka import Replayed
from config.kafka.client import KafkaError
from tests.buffer.ledger.conftest import paid, record, stocks, write
from tests.config.admin.conftest import client_with, page_of
from tests.conftest import order

pytestmark = pytest.mark.django_db


def find(client, key):
    return client.get("/admin/find/", {"q": key})


def test_one_hit_is_a_jump(boss, rows):
    for key, row in [
        ("C1", rows.waiting), (f"  {rows.sent.pk} ", rows.sent), ("WH-1", rows.bucket),
        (rows.late.position, rows.late), (str(rows.late.pk), rows.late),
    ]:  # fmt: skip
        assert find(boss, key).url == page_of(row)


def test_several_hits_are_a_page(boss, rows):
    response = find(boss, "A1")  # the order itself, and the letter of its late event
    assert response.status_code == 200
    assert page_of(rows.done).encode() in response.content
    assert page_of(rows.late).encode() in response.content
    parked = find(boss, str(rows.parked.pk)).content.decode()
    assert page_of(rows.parked) in parked
    assert page_of(rows.refused) in parked


@pytest.mark.parametrize(
    "key",
    ["A-99999", "c1", "C1%", "' OR 1=1", "transfer-requests/0/999", "x/99999999999999999999/1", "A\x00", "é" * 400],
)
def test_no_hit_is_a_sentence(boss, rows, key):
    response = find(boss, key)
    assert response.status_code == 200
    assert b"Nothing has the key" in response.content
    assert b"Searched: dead letters, " in response.content
    assert b"batches, buckets, buffered events, inventory stocks" in response.content


def test_only_what_one_may_see_is_searched(rows):
    limited = client_with("view_bucket")
    assert b"Nothing has the key" in find(limited, "C1").content
    assert find(limited, "WH-1").url == page_of(rows.bucket)


def test_an_order_is_found_by_its_key(boss, ingest, records, django_assert_max_num_queries):
    ingest(records(*[order(f"Z{number}") for number in range(20)]))
    with django_assert_max_num_queries(21):
        assert find(boss, "Z7").url == page_of(BufferedEvent.objects.get(order_id="Z7"))
    assert not Batch.objects.exists()


@pytest.fixture(autouse=True)
def log(monkeypatch):
    """What Kafka holds, by position; nothing for a start."""
    held = {}
    monkeypatch.setattr(lists, "record_at", lambda *place: held.get("/".join(map(str, place))))
    return held


def test_a_partition_is_found_and_a_position_without_a_letter_leads_to_it(boss, rows):
    assert find(boss, "transfer-requests/0").url == page_of(rows.mark)
    html = find(boss, "transfer-requests/0/999").content.decode()
    assert "Kafka has no record there" in html
    assert "?q=transfer-requests/0" in html
    assert "No flow reads or writes this topic." in find(boss, "nobodys/0/1").content.decode()


def test_an_order_a_batch_and_a_movement_are_found_by_the_positions_on_their_pages(boss, rows, log):
    stocks(S1=5)
    payment = record(paid("SO-7", S1=1))
    write(payment)
    log["transfer-requests/0/5"] = Replayed("transfer-requests", 0, 5, 0, None, order("C1"))
    batch_id = ("batch_id", str(rows.sent.pk).encode())
    log["transfer-batches/1/9"] = Replayed("transfer-batches", 1, 9, 0, None, b"{}", [batch_id])
    log["PAYMENT_SUCCESS/0/3"] = payment
    assert find(boss, "transfer-requests/0/5").url == page_of(rows.waiting)
    assert find(boss, "transfer-batches/1/9").url == page_of(rows.sent)
    assert find(boss, "PAYMENT_SUCCESS/0/3").url == page_of(InventoryTracking.objects.get(reference_id="SO-7"))


def test_a_position_shows_nothing_that_one_may_not_see(rows, log):
    log["transfer-requests/0/5"] = Replayed("transfer-requests", 0, 5, 0, None, order("C1"))
    assert b"Nothing has the key" in find(client_with("view_bucket"), "transfer-requests/0/5").content


@pytest.mark.parametrize(
    ("trouble", "said"), [(InvalidRecord("x", "y"), "cannot be read"), (KafkaError("gone"), "Kafka does not answer")]
)
def test_a_position_that_nobody_can_read_is_a_sentence(boss, monkeypatch, trouble, said):
    def fail(*_):
        raise trouble

    monkeypatch.setattr(lists, "record_at", fail)
    assert said in find(boss, "transfer-requests/0/5").content.decode()
