"""The contract of the HTTP API: what it does, and how it refuses."""

from __future__ import annotations

import uuid

import pytest

from notifications.orders import changes
from notifications.orders.models import Order
from outbox.models import OutboxMessage
from tests.notifications.conftest import Caller, new_order, problem


# -- What it does ------------------------------------------------------------------------------------
def test_an_order_is_created_pending_and_nobody_is_told(caller):
    answer = caller.create()
    assert (answer.status_code, answer.headers["Content-Type"]) == (201, "application/json")
    data = answer.json()
    assert (data["status"], data["total_amount"], data["currency"]) == ("pending", 1999, "EUR")
    assert uuid.UUID(data["id"]).version == 7
    assert Order.objects.get(pk=data["id"]).user_email == "ada@example.com"
    assert not OutboxMessage.objects.exists()


def test_an_order_shows_its_mails_and_their_state(caller):
    order = caller.create().json()["id"]
    paid = caller.change(order, "pay")
    assert (paid.status_code, paid.json()["status"]) == (200, "paid")
    refunded = caller.change(order, "refund", amount=500)
    assert (refunded.status_code, refunded.json()["status"]) == (200, "part_refunded")
    shown = caller.get(f"/v1/orders/{order}").json()
    assert (shown["status"], shown["refunded_amount"], shown["version"]) == ("part_refunded", 500, 2)
    messages = list(OutboxMessage.objects.order_by("id"))
    assert [(one["id"], one["event_type"], one["state"]) for one in shown["messages"]] == [
        (str(messages[0].pk), "order.paid", "pending"),
        (str(messages[1].pk), "order.part_refunded", "pending"),
    ]
    OutboxMessage.objects.all().delete()
    assert {one["state"] for one in caller.get(f"/v1/orders/{order}").json()["messages"]} == {"removed"}


def test_what_the_provider_said_is_shown(caller, order):
    from config.database.clock import database_now
    from notifications.mail.deliveries import Delivery

    changes.change(order.pk, "pay")
    message, now = OutboxMessage.objects.get(), database_now()
    Delivery.objects.create(
        message_id=message.pk, recipient="ada@example.com", provider="memory", status="delivered",
        status_at=now, accepted_at=now, updated_at=now,
    )  # fmt: skip
    shown = caller.get(f"/v1/orders/{order.pk}").json()["messages"][0]
    assert shown["delivery"]["state"] == "delivered"


def test_a_cancelled_order_cannot_be_paid(caller, order):
    assert caller.change(order.pk, "cancel").json()["status"] == "cancelled"
    refusal = problem(caller.change(order.pk, "pay"), 409, "illegal_transition")
    assert "cancelled" in refusal["detail"]
    assert OutboxMessage.objects.count() == 1


def test_the_correlation_id_of_the_request_travels_with_the_message(caller, order):
    caller.client.post(
        f"/v1/orders/{order.pk}/pay", {}, content_type="application/json",
        headers={"Idempotency-Key": "k", "X-Correlation-ID": "shop-checkout-4711"},
    )  # fmt: skip
    assert OutboxMessage.objects.get().correlation_id == "shop-checkout-4711"


@pytest.mark.parametrize("body", [b"", b"{}", b'{"note": "by card"}'])
def test_paying_needs_no_body(caller, order, body):
    answer = caller.client.generic(
        "POST", f"/v1/orders/{order.pk}/pay", body, "application/json", headers={"Idempotency-Key": "k"}
    )
    assert answer.status_code == 200


# -- Lists -------------------------------------------------------------------------------------------
def walk(caller: Caller, **query) -> list[str]:
    found, after = [], None
    while True:
        page = caller.get("/v1/orders", **query, **({"after": after} if after else {})).json()
        found += [order["id"] for order in page["orders"]]
        after = page["next"]
        if after is None:
            return found


def test_pages_follow_each_other_newest_first(caller):
    ids = [str(new_order().pk) for _ in range(7)]
    assert walk(caller, limit=3) == ids[::-1]
    assert walk(caller, limit=7) == ids[::-1]
    new_order()
    assert walk(caller, after=ids[2]) == ids[1::-1]


def test_lists_are_narrowed_by_address_and_status(caller):
    one = caller.create(user_email="Grace@EXAMPLE.com").json()["id"]
    two = caller.create().json()["id"]
    caller.change(two, "pay")
    assert walk(caller, user_email="Grace@example.COM") == [one]
    assert walk(caller, user_email="grace@example.com") == []
    assert walk(caller, status="paid") == [two]
    assert walk(caller, status="paid", user_email="ada@example.com") == [two]
    problem(caller.get("/v1/orders", status="lost"), 422, "invalid")
    problem(caller.get("/v1/orders", user_email="a@b.example, c@d.example"), 422, "invalid")
    problem(caller.get("/v1/orders", after="yesterday"), 422, "invalid")
    problem(caller.get("/v1/orders", limit=101), 422, "invalid")


def test_a_page_asks_the_same_few_questions_whatever_its_length(caller, django_assert_num_queries):
    for _ in range(12):
        changes.change(new_order().pk, "pay")
    caller.get("/v1/orders")  # marks the token as used
    for limit in (2, 12):
        with django_assert_num_queries(6):  # token, orders, events, what was resent, messages, deliveries
            assert len(caller.get("/v1/orders", limit=limit).json()["orders"]) == limit


def test_answers_are_not_cached_and_carry_a_correlation_id(caller):
    for answer in (caller.create(), caller.get("/v1/nothing")):
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Correlation-ID"]


def test_addresses_stay_out_of_the_log(caller, order, caplog, capsys):
    caller.create(user_email="canary@example.com")
    caller.create(user_email="canary@example.com, x@example.com")
    caller.get("/v1/orders", user_email="canary@example.com")
    assert "canary" not in caplog.text + "".join(capsys.readouterr())
