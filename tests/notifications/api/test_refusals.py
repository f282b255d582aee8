"""How the HTTP API refuses: always a problem, never a traceback, and nothing is changed."""

from __future__ import annotations

import json

import pytest
from django.db import OperationalError
from django.test import Client
from ninja import Router
from ninja.constants import NOT_SET

from config.fields import uuid7
from notifications.api import tokens
from notifications.api.auth import BearerToken
from notifications.api.site import admitting
from notifications.api.tokens import issue
from notifications.orders import changes
from notifications.orders.models import MOST_AMOUNT, Order
from outbox.api.problems import CustomerRouter
from outbox.models import IdempotencyKey, OutboxMessage
from tests.notifications.conftest import ME, Caller, problem


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({"user_email": ""}, "user_email"),
        ({"user_email": "ada@example.com, eve@example.com"}, "user_email"),
        ({"user_email": "ada@example.com\r\nBcc: eve@example.com"}, "user_email"),
        ({"user_email": "Ada <ada@example.com>"}, "user_email"),
        ({"user_email": f"{'a' * 320}@example.com"}, "user_email"),
        ({"user_email": 7}, "user_email"),
        ({"total_amount": 0}, "total_amount"),
        ({"total_amount": -1}, "total_amount"),
        ({"total_amount": 19.99}, "total_amount"),
        ({"total_amount": 5.0}, "total_amount"),
        ({"total_amount": "1999"}, "total_amount"),
        ({"total_amount": True}, "total_amount"),
        ({"total_amount": MOST_AMOUNT + 1}, "total_amount"),
        ({"total_amount": None}, "total_amount"),
        ({"currency": "eur"}, "currency"),
        ({"currency": "EURO"}, "currency"),
        ({"currency": "XXX"}, "currency"),
        ({"ammount": 1}, "ammount"),
    ],
)
def test_a_wrong_value_is_named_and_not_repeated(caller, changed, place):
    refusal = problem(caller.create(**changed), 422, "invalid")
    assert [error["where"] for error in refusal["errors"]] == [f"body.{place}"]
    assert "eve@" not in json.dumps(refusal)
    assert not Order.objects.exists()
    assert not IdempotencyKey.objects.exists()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"[1]", 422),
        (b"null", 422),
        (b'{"total_amount": NaN}', 400),
        (b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", 400),
        (b'{"total_amount": ' + b"9" * 5000 + b"}", (400, 422)),
        (b'{"user_email": "a\\u0000@example.com"}', 400),
        (b'{"user_email": "\\ud800@example.com"}', 400),
    ],
    ids=lambda part: str(part)[:30],
)
def test_a_body_that_is_no_order_is_refused(caller, body, status):
    answer = caller.client.generic("POST", "/v1/orders", body, "application/json", headers={"Idempotency-Key": "k"})
    assert answer.status_code in (status if isinstance(status, tuple) else (status,))
    problem(answer, answer.status_code, {400: "malformed", 422: "invalid"}[answer.status_code])


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/csv"]
)
@pytest.mark.parametrize("body", [b"user_email=ada%40example.com&total_amount=1999", b"hello", b"7", b"--x--"])
def test_a_body_that_is_not_sent_as_json_says_so(caller, order, kind, body):
    for path in ("/v1/orders", f"/v1/orders/{order.pk}/pay", f"/v1/orders/{order.pk}/refund"):
        answer = caller.client.generic("POST", path, body, kind, headers={"Idempotency-Key": "k"})
        assert "application/json" in problem(answer, 415, "not_json")["detail"]
    assert Order.objects.get().status == "pending"


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "application/merge-patch+json", ""]
)
def test_json_is_read_whatever_it_is_sent_as(caller, kind):
    """curl -d and others call everything a form."""
    body = b'{"user_email": "ada@example.com", "total_amount": 1999, "currency": "EUR"}'
    answer = caller.client.generic("POST", "/v1/orders", body, kind, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 201


@pytest.mark.parametrize("amount", [19.99, "1999", 0, -1, MOST_AMOUNT + 1, True, None, [], {}])
def test_whoever_sends_no_amount_learns_what_one_is(caller, order, amount):
    changes.change(order.pk, "pay")
    problem(caller.change(order.pk, "refund"), 422, "invalid")
    asked = {
        "total_amount": caller.create(total_amount=amount),
        "amount": caller.change(order.pk, "refund", amount=amount),
    }
    for name, answer in asked.items():
        (error,) = problem(answer, 422, "invalid")["errors"]
        assert error["where"] == f"body.{name}"
        assert "minor units, 1999 for 19.99 EUR" in error["what"]
    refused = problem(caller.change(order.pk, "refund", amount=order.total_amount + 1), 409, "illegal_transition")
    assert "in minor units" in refused["detail"]


@pytest.mark.parametrize("key", [None, "", " ", "two words", "k" * 201, "schlüssel"])
def test_a_post_without_a_usable_key_is_refused(caller, order, key):
    headers = {} if key is None else {"Idempotency-Key": key}
    for path in ("/v1/orders", f"/v1/orders/{order.pk}/pay"):
        answer = caller.client.post(path, {}, content_type="application/json", headers=headers)
        problem(answer, 400, "idempotency_key")


def test_a_key_may_be_anything_visible(caller, order):
    assert caller.change(order.pk, "pay", key="!~" * 100).status_code == 200


def test_a_thousand_query_fields_are_refused(caller):
    query = "&".join(f"field{number}=1" for number in range(1001))
    problem(caller.client.get(f"/v1/orders?{query}"), 400, "malformed")


def test_who_has_no_valid_token_gets_nothing(db, order):
    token, text = issue("gone", ME)
    tokens.revoke([token.pk], ME, "leaked")
    for given in ("", "Bearer", "Bearer x", "Basic dXNlcjpwdw==", f"Bearer {text}", f"Bearer {text}x",
                  "Bearer spillway_zzzz_x", "Bearer é", f"Bearer spillway_{token.prefix}_"):  # fmt: skip
        answer = Client().get(f"/v1/orders/{order.pk}", headers={"Authorization": given} if given else {})
        problem(answer, 401, "unauthorized")
        assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_a_customers_token_sees_no_orders(db, order):
    customer = Caller(issue("shop", ME, customer_id="C-1", rate=0)[1])
    for answer in (customer.get("/v1/orders"), customer.get(f"/v1/orders/{order.pk}"), customer.create()):
        problem(answer, 403, "forbidden")


def test_a_router_for_customers_keeps_what_it_asks_for_itself():
    class Stricter(BearerToken):
        pass

    assert type(admitting(CustomerRouter()).auth) is BearerToken
    assert type(admitting(CustomerRouter(auth=Stricter())).auth) is Stricter
    assert admitting(CustomerRouter(auth=None)).auth is None
    assert admitting(Router()).auth is NOT_SET  # what the whole API asks for: a token without a customer


def test_an_unknown_order_is_not_found(caller):
    problem(caller.get(f"/v1/orders/{uuid7()}"), 404, "not_found")
    for action in ("pay", "cancel"):
        problem(caller.change(uuid7(), action), 404, "not_found")
    problem(caller.get("/v1/orders/seven"), 422, "invalid")


def test_what_django_refuses_is_a_problem_too(caller, order, settings):
    for path in ("/v1/nothing", "/v1/", "/v1"):
        problem(caller.get(path), 404, "not_found")
    wrong = caller.client.delete(f"/v1/orders/{order.pk}")
    problem(wrong, 405, "method_not_allowed")
    assert wrong.headers["Allow"] == "GET"
    settings.ALLOWED_HOSTS = ["api.example.com"]
    problem(caller.get("/v1/orders"), 400, "malformed")


def test_a_large_body_is_refused_before_it_is_read(caller, settings):
    settings.API_MAX_BYTES = 1024
    problem(caller.create(user_email="a" * 1100), 413, "too_large")
    assert caller.create().status_code == 201


def test_too_many_requests_are_told_when_to_come_back(db):
    slow = Caller(issue("slow", ME, rate=2)[1])
    answers = [slow.get("/v1/orders") for _ in range(4)]
    assert [answer.status_code for answer in answers][:2] == [200, 200]
    refused = [answer for answer in answers if answer.status_code != 200]
    assert refused
    for answer in refused:
        problem(answer, 429, "rate_limited")
        assert 1 <= int(answer.headers["Retry-After"]) <= 2


def test_a_bug_is_a_500_that_tells_nothing_and_changes_nothing(caller, order, monkeypatch):
    def fail(*args):
        raise KeyError("secret detail")

    monkeypatch.setattr("notifications.mail.content.render", fail)
    answer = caller.change(order.pk, "pay", key="again")
    assert b"secret" not in answer.content
    problem(answer, 500, "internal")
    assert Order.objects.get().status == "pending"
    assert not IdempotencyKey.objects.exists()
    monkeypatch.undo()
    assert caller.change(order.pk, "pay", key="again").status_code == 200


def test_a_database_that_is_away_is_a_503(caller, order, monkeypatch):
    def away(*args, **kwargs):
        raise OperationalError("server closed the connection unexpectedly at 10.0.0.7")

    monkeypatch.setattr(tokens, "identify", away)
    for answer in (caller.get("/v1/orders"), caller.create()):
        assert "The database does not answer" in problem(answer, 503, "unavailable")["detail"]
        assert answer.headers["Retry-After"]
        assert b"10.0.0.7" not in answer.content


def test_a_commit_that_fails_is_a_503_and_the_same_request_decides(caller, order, monkeypatch):
    """The connection breaks at COMMIT: nobody knows, so the caller asks again under the same key."""
    real, calls = changes.carry_out, []

    def cut(planned):
        if not calls:
            calls.append(1)
            raise OperationalError("connection lost")
        return real(planned)

    monkeypatch.setattr("notifications.api.orders.changes.carry_out", cut)
    problem(caller.change(order.pk, "pay", key="again"), 503, "unavailable")
    assert caller.change(order.pk, "pay", key="again").status_code == 200
    assert OutboxMessage.objects.count() == 1
