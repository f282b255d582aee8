"""The admin's pages of orders and tokens: what they show to whom, and the one thing that can be done."""

from __future__ import annotations

import re

import pytest

from config.database.clock import database_now
from config.environment.mailbox import masked
from config.fields import uuid7
from notifications.api.tokens import ApiToken, identify, issue
from notifications.mail.content import short
from notifications.orders import changes
from notifications.orders.models import Order
from outbox.audit_log.models import OperatorAction
from outbox.models import OutboxMessage
from tests.config.admin.conftest import client_with, lever_of, list_of, page_of, reveal
from tests.notifications.conftest import ME, new_order


# -- Orders ------------------------------------------------------------------------------------------
def test_the_list_shows_orders_with_masked_addresses(boss, order):
    html = boss.get(list_of(Order)).content.decode()
    assert "a…@example.com" in html
    assert "ada@" not in html
    assert "10.00 EUR" in html


def test_an_order_shows_its_mails_and_its_timeline(boss, order):
    changes.change(order.pk, "pay")
    changes.change(order.pk, "refund", 250)
    html = boss.get(page_of(order)).content.decode()
    for text in ("Paid</a>", "Partly refunded</a>", "2.50 EUR", "7.50 EUR", "Partly refunded"):
        assert text in html
    assert "part_refunded" not in html
    OutboxMessage.objects.all().delete()
    assert "removed with its day" in boss.get(page_of(order)).content.decode()


def test_the_address_needs_the_right_to_see_payloads(db, order):
    reader = client_with("view_order")
    html = reader.get(page_of(order)).content.decode()
    assert "ada@" not in html
    assert "see payloads" in html
    allowed = client_with("view_order", "view_payload")
    assert "ada@" not in allowed.get(page_of(order)).content.decode()
    reveal(allowed, order)
    assert "ada@" in allowed.get(page_of(order)).content.decode()


@pytest.mark.parametrize("status", ["all", *Order.Status.values])
def test_the_list_is_narrowed_by_status(boss, order, status):
    html = boss.get(list_of(Order), {"status": status}).content.decode()
    assert (str(order.pk) in html) is (status in ("all", "pending"))


FOUND_BY = {
    "id": lambda order: str(order.pk),
    "address": lambda order: "GRACE.hopper@Example.COM",
    "number in words": lambda order: f"Order {short(order.pk)}",
    "number in small letters": lambda order: short(order.pk).lower(),
    "number as people write it": lambda order: f"#{short(order.pk)}",
}


@pytest.mark.parametrize("key", FOUND_BY.values(), ids=FOUND_BY)
def test_an_order_is_found_by_what_a_customer_says_whatever_its_capitals(boss, order, key):
    mine = changes.create("Grace.Hopper@example.com", 100, "EUR", database_now())
    assert boss.get("/admin/find/", {"q": key(mine)}).headers["Location"] == page_of(mine)
    assert str(mine.pk) in boss.get(list_of(Order), {"q": key(mine)}).content.decode()


def test_several_orders_or_none_are_a_page(boss, order):
    new_order()
    for key in ("ada@example.com", str(uuid7()), "nobody@example.com", "a, b", "\x00"):
        assert boss.get("/admin/find/", {"q": key}).status_code == 200


def test_a_mail_names_the_number_that_pages_show(boss, order):
    number = short(order.pk)
    changes.change(order.pk, "pay")
    assert f"order {number}" in OutboxMessage.objects.get().payload
    for page in (list_of(Order), page_of(order)):
        assert number in boss.get(page).content.decode()


def test_a_sent_message_has_a_way_to_its_order_and_back(boss, order):
    changes.change(order.pk, "pay")
    OutboxMessage.objects.update(state="sent", sent_at=database_now())
    message = OutboxMessage.objects.get()
    assert page_of(message) in boss.get(page_of(order)).content.decode()
    way = f"/admin/find/?q=order%3A{order.pk}"
    assert f'href="{way}"' in boss.get(page_of(message)).content.decode()
    assert boss.get(way).headers["Location"] == page_of(order)


def test_orders_have_no_lever_and_no_form(boss, order):
    html = boss.get(page_of(order)).content.decode()
    assert "sw-levers" not in html
    assert boss.get(f"{list_of(Order)}add/").status_code == 403
    assert boss.post(page_of(order), {"status": "paid"}).status_code == 200
    assert Order.objects.get().status == "pending"


def test_an_address_is_masked_to_what_tells_two_apart():
    assert masked("ada@example.com") == "a…@example.com"


# -- Tokens ------------------------------------------------------------------------------------------
def test_a_new_token_is_shown_once(boss):
    answer = boss.post(f"{list_of(ApiToken)}add/", {"name": "web shop", "customer_id": "", "rate": ""})
    text = re.search(r"spillway_[\w-]+", answer.content.decode())[0]
    assert answer.status_code == 200
    assert "no-store" in answer.headers["Cache-Control"]
    token = identify(text)
    assert (token.name, token.rate, token.created_by) == ("web shop", None, "M. Okafor")
    for page in (page_of(token), list_of(ApiToken), list_of(OperatorAction)):
        assert text not in boss.get(page).content.decode()
    assert token.prefix in boss.get(page_of(token)).content.decode()
    assert OperatorAction.objects.get().verb == "create token"


def test_a_token_is_made_with_channels_and_shows_them(boss):
    boss.post(f"{list_of(ApiToken)}add/", {"name": "billing", "channels": "kafka, email,kafka"})
    token = ApiToken.objects.get()
    assert token.allowed_channels == ["kafka", "email"]
    assert "messages of kafka, email" in boss.get(list_of(ApiToken)).content.decode()
    assert "messages of kafka, email" in boss.get(page_of(token)).content.decode()
    assert OperatorAction.objects.get().detail["channels"] == "kafka,email"
    html = boss.post(f"{list_of(ApiToken)}add/", {"name": "fax", "channels": "fax"}).content.decode()
    assert "there is no channel &#x27;fax&#x27;" in html
    assert ApiToken.objects.count() == 1


def test_a_wrong_value_makes_no_token(boss):
    answer = boss.post(f"{list_of(ApiToken)}add/", {"name": "", "customer_id": "", "rate": "-1"})
    assert answer.status_code == 200
    assert not ApiToken.objects.exists()


def test_a_token_is_revoked_with_a_reason(boss):
    token, text = issue("shop", ME)
    lever = lever_of(ApiToken, "revoke", token)
    assert boss.get(lever).status_code == 200
    boss.post(lever, {"id": token.pk, "reason": "short"})
    assert identify(text) == token
    boss.post(lever, {"id": token.pk, "reason": "leaked in a log file"})
    assert identify(text) is None
    action = OperatorAction.objects.latest("pk")
    assert (action.verb, action.reason) == ("revoke token", "leaked in a log file")
    assert "Revoked" in boss.get(page_of(token)).content.decode()
    assert "shop" not in boss.get(f"{list_of(ApiToken)}?show=valid").content.decode().partition("result_list")[2]
