"""Callers of the API, orders, and a hand on every race."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.test import Client

from config.admin.levers import Operator
from config.database.clock import database_now
from notifications.api.tokens import issue
from notifications.orders import changes
from notifications.orders.models import Order
from tests.notifications.post import email as email
from tests.notifications.tls_mail import mails as mails
from tests.notifications.tls_mail import tls_sink as tls_sink
from tests.outbox import race as outbox_race

ME = Operator("test")
PATIENCE = 60
_keys = itertools.count()


@pytest.fixture(autouse=True)
def _plain_http(settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = False


class Caller:
    """A program with a token; every POST gets a key of its own unless it brings one."""

    def __init__(self, token: str) -> None:
        self.client = Client(headers={"Authorization": f"Bearer {token}"})

    def post(self, path: str, body: Any = None, key: str | None = "", **more: Any) -> Any:
        headers = {} if key is None else {"Idempotency-Key": key or f"key-{next(_keys)}"}
        more.setdefault("content_type", "application/json")
        return self.client.post(path, {} if body is None else body, headers=headers, **more)

    def get(self, path: str, **query: Any) -> Any:
        return self.client.get(path, query)

    def create(self, key: str = "", **changed: Any) -> Any:
        body = {"user_email": "ada@example.com", "total_amount": 1999, "currency": "EUR", **changed}
        return self.post("/v1/orders", body, key)

    def change(self, order: Any, action: str, key: str = "", **body: Any) -> Any:
        return self.post(f"/v1/orders/{order}/{action}", body, key)


@pytest.fixture
def caller(db: None) -> Caller:
    return Caller(issue("tests", ME, rate=0)[1])


@pytest.fixture
def order(db: None) -> Order:
    return new_order()


def new_order(total: int = 1000) -> Order:
    return changes.create("ada@example.com", total, "EUR", database_now())


def problem(answer, status: int, code: str) -> dict:
    """The refusal, once it is one in the agreed form."""
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json"), answer.content
    data = answer.json()
    assert (data["status"], data["code"], data["type"]) == (status, code, f"/api/docs#{code}")
    assert data["title"]
    assert data["detail"]
    return data


def race(*contenders: Callable[[], object]) -> list[object]:
    """What each returned or raised, of several at once."""

    def outcome(contender: Callable[[], object]) -> object:
        try:
            return contender()
        except Exception as error:
            return error

    return outbox_race.race(*[partial(outcome, contender) for contender in contenders])
