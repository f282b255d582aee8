"""The search field: any key, straight to the one hit."""

import pytest

from buffer.events.models import Batch, BufferedEvent
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
    [
        "A-99999",
        "c1",
        "C1%",
        "' OR 1=1",
        "transfer-requests/0/999",
        "x/99999999999999999999/1",
        "A\x00",
        "é" * 400,
    ],
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
    with django_assert_max_num_queries(18):
        assert find(boss, "Z7").url == page_of(BufferedEvent.objects.get(order_id="Z7"))
    assert not Batch.objects.exists()


def test_a_partition_is_found_and_a_position_without_a_letter_leads_to_it(boss, rows):
    assert find(boss, "transfer-requests/0").url == page_of(rows.mark)
    html = find(boss, "transfer-requests/0/999").content.decode()
    assert "By its position only a dead letter is found" in html
    assert "?q=transfer-requests/0" in html
