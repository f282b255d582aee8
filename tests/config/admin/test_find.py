"""The search field: any key or its beginning, straight to the one hit, several by kind."""

import re

import pytest
from django.db import connection

from buffer.events.models import Batch, BufferedEvent
from buffer.ledger.models import InventoryTracking
from config.admin import lists
from config.database.clock import database_now
from config.database.queries import is_mariadb
from config.gate import InvalidRecord
from config.kafka import Replayed
from config.kafka.client import KafkaError
from notifications.orders.models import Order
from outbox.letters.models import DeadLetter
from tests.buffer.ledger.conftest import paid, record, stocks, write
from tests.config.admin.conftest import client_with, page_of
from tests.conftest import order
from throttler.customers.models import Customer
from throttler.lanes.models import Lane

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


def kinds(response):
    """The headings of the page of hits, and what stands under each."""
    parts = re.split(r'<h2 id="sw-kind-\d+">', response.content.decode().partition("</main>")[0])[1:]
    return {part.partition("<")[0]: part for part in parts}


def test_the_beginning_of_a_key_finds_a_few_of_each_kind_and_links_to_the_lists(boss, ingest, records):
    now = database_now()
    ingest(records(*[order(f"ZZ-{number:03d}", at=now.isoformat()) for number in range(12)]))
    DeadLetter.objects.create(group_id=1, source="ledger", step="decode", reason="r", business_key="ZZ-77", created_at=now, updated_at=now)  # fmt: skip
    Customer.objects.create(pk="ZZ-customer", created_at=now, updated_at=now)
    Lane.objects.create(partition=0, customer_id="ZZ-lane", backlog=2, first=0, drained=0, seen=0, updated_at=now)
    hits = kinds(find(boss, "ZZ-"))
    assert list(hits) == ["Dead letters", "Buffered events", "Customers"]
    assert hits["Buffered events"].count('href="/admin/buffer/bufferedevent/') == 10 + 1
    assert "There are more: all" in hits["Buffered events"]
    assert "There are more" not in hits["Customers"]
    for said, names in [("Dead letters", ["ZZ-77"]), ("Buffered events", ["ZZ-011"]), ("Customers", ["ZZ-lane"])]:
        listed = re.search(r'<a href="(/admin/\w+/\w+/\?q=[^"]+)"', hits[said])[1]
        html = boss.get(listed).content.decode()
        assert "Only what begins with “ZZ-”." in html
        assert all(name in html for name in names)
    assert find(boss, "ZZ-00").status_code == 200
    assert find(boss, "ZZ-011").url == page_of(BufferedEvent.objects.get(order_id="ZZ-011")), "the whole key, alone"
    assert find(boss, "ZZ-l").url == "/admin/throttler/customer/ZZ-lane/change/", "one hit alone is opened"


def test_the_beginning_of_a_location_and_of_a_batch(boss, rows):
    assert page_of(rows.bucket) in kinds(find(boss, "WH-"))["Buckets"]
    found = find(boss, str(rows.sent.pk)[:13].replace("-", ""))
    if is_mariadb(connection):
        assert b"Nothing has the key" in found.content
    else:
        assert found.url == page_of(rows.sent)


def test_hits_by_their_beginning_are_of_kinds_that_one_may_see_and_hide_addresses(rows):
    now = database_now()
    kept = {"total_amount": 1, "currency": "EUR", "created_at": now, "updated_at": now}
    mine = [Order.objects.create(user_email=f"tom{number}@example.com", **kept) for number in range(2)]
    begun = str(mine[0].pk)[:8]
    limited = client_with("view_order")
    assert list(kinds(find(limited, begun))) == ["Orders"]
    assert b"tom0@" not in find(limited, begun).content
    for text in ("tom", "tom0@example", "example.com"):
        assert b"Nothing has the key" in find(limited, text).content, text
    assert b"Nothing has the key" in find(client_with("view_bucket"), begun).content


def test_what_nothing_begins_with_says_what_can_be_searched(boss, rows, django_assert_max_num_queries):
    with django_assert_max_num_queries(42):
        html = find(boss, "abcdef").content.decode()  # a beginning of ids, too
    assert "The whole key, then its beginning, from 3 characters on" in html
    assert "A key is an order's id, the number in its mails" in html
    assert b"Nothing has the key" in find(boss, "WH").content, "two characters are the beginning of nearly everything"


def test_another_row_of_a_key_is_not_one_that_begins_with_it(boss, rows):
    beside = boss.get("/admin/find/", {"q": "C1", "beside": str(rows.waiting.pk)})
    assert b"Nothing has the key" in beside.content


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
