"""What waits, message by message: in order, only what waits, and hidden from who may not see payloads."""

import re

import pytest
from django.db import OperationalError

from config.telemetry.redaction import DOTS
from outbox.models import OperatorAction
from tests.config.admin.conftest import client_with, queries_of, seen, walk
from tests.throttler.admin.conftest import LIST, add_customer, add_lane, add_owner, store, stored
from throttler.admin import waiting_messages
from throttler.messages import moment_of
from throttler.models import Customer, Lane
from throttler.overflow.django import DjangoStore
from throttler.overflow.store import OverflowStore

pytestmark = pytest.mark.django_db
MESSAGES = f"{LIST}messages/?customer=harbour-foods"
LOOK = ("view_customer", "view_overflowmessage")


SHOWN = r">(n-\d+)</a>"


def shown(html):
    return re.findall(SHOWN, html)


def message(offset, more=""):
    return f"{LIST}message/?customer=harbour-foods&partition=5&offset={offset}{more}"


@pytest.fixture
def buffered(db):
    """130 wait behind offset 2000; 5 have left, 3 lie beyond what was decided, one belongs to somebody else."""
    add_customer(), add_owner()
    add_lane(backlog=130, first=1_996, drained=2_000, seen=2_130)
    store(*[stored(1_996 + number) for number in range(138)], stored(2_050, "somebody-else"))


def test_pages_show_what_waits_and_nothing_else_oldest_first(boss, buffered):
    pages, _ = walk(boss, MESSAGES, "next", SHOWN)
    assert [name for page in pages for name in page] == [f"n-{offset}" for offset in range(2_001, 2_131)]


def test_a_page_reads_one_page_of_rows(boss, buffered):
    asked = queries_of(boss, MESSAGES)
    (read,) = [sql for sql in asked if "overflowmessage" in sql]
    assert "LIMIT" in read or "r.most" in read
    assert len(asked) <= 10


def test_a_message_is_found_by_its_notification_id_also_when_it_has_left(boss, buffered):
    assert shown(seen(boss, f"{MESSAGES}&notification=n-2077")) == ["n-2077"]
    assert shown(seen(boss, f"{MESSAGES}&notification=n-1998")) == ["n-1998"]
    for nothing in ("n-2132", "N-2077", "n-207%25", "x\x00"):
        assert "Nothing has the notification id" in seen(boss, f"{MESSAGES}&notification={nothing}")
    Lane.objects.update(backlog=0, drained=2_130, day=None, oldest_at=None)
    assert shown(seen(boss, f"{MESSAGES}&notification=n-2077")) == ["n-2077"]


def test_a_store_without_an_index_searches_what_leaves_next_and_says_so(boss, buffered, monkeypatch):
    class Without(DjangoStore):
        searched = OverflowStore.searched
        find = OverflowStore.find

    monkeypatch.setattr(waiting_messages, "store_of_settings", Without)
    monkeypatch.setattr(waiting_messages, "SEARCHED", 2)
    assert "among the next 100 messages: this store has no index" in seen(boss, MESSAGES)
    assert shown(seen(boss, f"{MESSAGES}&notification=n-2100")) == ["n-2100"]
    for nothing in ("n-1998", "n-2101"):  # it has left; it is behind them
        assert "the next 100 messages of harbour-foods" in seen(boss, f"{MESSAGES}&notification={nothing}")


def test_what_has_left_says_so(boss, buffered):
    assert "It has left the buffer" in seen(boss, message(1_998))
    assert "It expires" in seen(boss, message(2_001))
    assert boss.get(message(5)).status_code == 404
    assert boss.get(message(2_001).replace("partition=5", "partition=6")).status_code == 404


def test_payloads_and_headers_are_dots_until_somebody_reveals_them(boss, buffered):
    store(stored(2_001, "harbour-foods", headers=b'[["x-user", "YW5uYQ=="], ["empty", null]]', partition=6))
    add_lane(partition=6, backlog=1, drained=2_000, seen=2_001)
    url = message(2_001).replace("partition=5", "partition=6")
    for client in (boss, client_with(*LOOK)):
        for page in (url, message(2_001), MESSAGES):
            assert "anna" not in seen(client, page).lower()
    hidden = seen(client_with(*LOOK), url)
    assert "n-2001" in hidden
    assert DOTS in hidden
    assert "“see payloads”" in hidden
    assert client_with(*LOOK).post(url, {"reason": "The customer called"}).status_code == 403
    assert boss.post(url, {"reason": "The customer called"}).status_code == 302
    shown_page = seen(boss, url)
    assert "anna@example.com" in shown_page
    assert "<code>anna</code>" in shown_page
    assert "anna" not in seen(boss, message(2_001)), "another message"
    assert [action.verb for action in OperatorAction.objects.order_by("pk")] == ["refused", "reveal"]


def test_browsing_needs_both_rights(buffered):
    for rights in (["view_customer"], ["view_overflowmessage"], []):
        for url in (MESSAGES, message(2_001)):
            assert client_with(*rights).get(url).status_code == 403
    assert client_with(*LOOK).get(MESSAGES).status_code == 200


def test_a_message_expires_at_its_own_time_or_at_that_of_its_customer(boss, buffered):
    row = stored(2_140)
    Lane.objects.update(seen=2_140)
    Customer.objects.update(ttl_seconds=3_600)
    store(stored(2_140, expires_us=row.created_us + 90_000_000))
    html = seen(boss, message(2_140))
    assert f"{moment_of(row.created_us + 90_000_000):%H:%M}" in html
    assert "the lifetime of its customer" not in html
    assert "the lifetime of its customer" in seen(boss, message(2_001))


def test_a_page_begins_behind_what_has_left(boss, buffered):
    assert shown(seen(boss, f"{MESSAGES}&after=1990"))[0] == "n-2001"


@pytest.mark.parametrize("more", ["&after=x", "&after=99999999999999999999", "&after=-1", "&partition=x", "&after="])
def test_broken_places_are_the_first_page(boss, buffered, more):
    assert shown(seen(boss, MESSAGES + more))[0] == "n-2001"


def test_empty_pages_say_why(boss, buffered):
    assert "No more wait here" in seen(boss, f"{MESSAGES}&after=2130")
    Lane.objects.all().delete()
    assert "Nothing waits" in seen(boss, MESSAGES)
    assert boss.get(f"{LIST}messages/?customer=nobody").status_code == 404
    assert boss.get(f"{LIST}messages/").status_code == 404


def test_a_store_that_does_not_answer_is_said_and_no_error_page(boss, buffered, monkeypatch):
    class Away(DjangoStore):
        def read(self, ranges):
            raise OperationalError("connection refused")

        def find(self, lane, notification_id):
            raise OperationalError("connection refused")

    monkeypatch.setattr(waiting_messages, "store_of_settings", Away)
    for url in (MESSAGES, f"{MESSAGES}&notification=n-2077"):
        assert "The overflow store does not answer." in seen(boss, url)
    assert boss.get(message(2_001)).url == MESSAGES
