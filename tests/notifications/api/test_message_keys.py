"""Messages that are promised by HTTP once, by their own key and by that of the request, whoever asks at the same time."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, connections

from outbox.api import promises as by_http
from outbox.flow import Outbox
from outbox.models import IdempotencyKey, OutboxMessage
from tests.notifications.api.conftest import PATH, counted, nothing_is_stored, places, promise, stored, token
from tests.notifications.conftest import PATIENCE, Caller, problem, race
from tests.outbox.conftest import clock  # noqa: F401 (a fixture)
from tests.outbox.intake.conftest import envelope

pytestmark = pytest.mark.django_db(transaction=True)


# -- Once, by key ------------------------------------------------------------------------------------
def test_a_known_key_with_the_same_message_gets_that_message(billing):
    first = promise(billing, envelope()).json()["messages"]
    OutboxMessage.objects.update(state="sent")
    before = counted("repeated"), counted("stored")
    again = promise(billing, envelope(), envelope("new"), envelope("new")).json()["messages"]
    assert again[0] == {**first[0], "state": "sent"}
    assert again[1] == again[2]
    assert len(stored()) == 2
    assert (counted("repeated") - before[0], counted("stored") - before[1]) == (2, 1)


def test_a_known_key_whose_message_is_not_kept_any_more_says_so(billing, monkeypatch):
    monkeypatch.setattr(by_http.Promise, "digest", "1" * 32)  # a mail is filled in with the time of its promise
    first = promise(billing, envelope()).json()["messages"]
    OutboxMessage.objects.all().delete()
    assert promise(billing, envelope()).json()["messages"] == [{**first[0], "state": "removed"}]


def test_a_key_that_was_used_for_another_message_refuses_all_of_them(billing):
    promise(billing, envelope())
    refusal = problem(promise(billing, envelope("new"), envelope(event_type="other")), 422, "invalid")
    assert places(refusal) == [("body.messages.1", "key_conflict")]
    assert "its event_type differs" in refusal["errors"][0]["what"]
    assert len(stored()) == 1
    assert IdempotencyKey.objects.count() == 2
    problem(promise(billing, envelope("x"), envelope("x", event_type="other")), 422, "invalid")
    assert len(stored()) == 1


def test_keys_belong_to_the_name_of_the_token(billing):
    promise(billing, envelope("42"))
    promise(Caller(token("shop")), envelope("42", aggregate="a"))
    assert promise(Caller(token("billing")), envelope("42")).status_code == 202  # a new token goes on
    assert len(stored()) == 2


# -- Once, by Idempotency-Key ------------------------------------------------------------------------
def test_the_same_request_gets_the_same_bytes_and_does_nothing(billing):
    first = promise(billing, envelope(), key="k")
    OutboxMessage.objects.update(state="sent")
    again = promise(billing, envelope(), key="k")
    assert (again.status_code, again.content) == (202, first.content)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert len(stored()) == 1


def test_another_body_under_the_key_is_refused(billing):
    promise(billing, envelope(), key="k")
    problem(promise(billing, envelope("other"), key="k"), 422, "key_reused")
    problem(billing.post(PATH, {"messages": [envelope()]}, None), 400, "idempotency_key")
    assert len(stored()) == 1


def test_of_the_same_request_at_once_one_promises():
    text = token()
    callers = [Caller(text) for _ in range(4)]
    for number in range(5):
        some = [envelope(f"{number}-{place}", aggregate=f"a{place}") for place in range(10)]
        answers = race(*[lambda c=c, n=number, some=some: promise(c, *some, key=f"k{n}") for c in callers])
        codes = sorted({answer.status_code for answer in answers})
        assert codes in ([202], [202, 409]), [answer.content for answer in answers if answer.status_code != 202]
        assert len({answer.content for answer in answers if answer.status_code == 202}) == 1
        assert OutboxMessage.objects.count() == 10 * (number + 1)
    assert [check for check in Outbox().verify() if not check.ok] == []


def test_the_same_promises_at_once_under_two_keys_are_one_message_each():
    """In opposite orders: the keys of promises are locked in theirs."""
    text = token()
    some = [envelope(f"k{number}", aggregate=f"a{number}") for number in range(40)]
    answers = race(
        lambda: promise(Caller(text), *some, key="one"), lambda: promise(Caller(text), *some[::-1], key="two")
    )
    assert [answer.status_code for answer in answers] == [202, 202]
    ids = [{one["id"] for one in answer.json()["messages"]} for answer in answers]
    assert ids[0] == ids[1]
    assert len(stored()) == 40


def test_of_two_bodies_at_once_under_one_key_one_promises():
    text = token()
    for number in range(5):
        one, two = (envelope(f"{number}-{name}", aggregate=name) for name in "ab")
        answers = race(*[lambda e=e, n=number: promise(Caller(text), e, key=f"k{n}") for e in (one, two)])
        codes = sorted(answer.json().get("code", "") for answer in answers)
        assert codes in (["", "key_reused"], ["", "in_progress"]), [answer.content for answer in answers]
        assert OutboxMessage.objects.count() == number + 1


def test_of_two_messages_at_once_under_one_name_of_a_promise_one_is_promised():
    text = token()
    for number in range(5):
        some = [envelope(f"{number}", event_type=name, aggregate=f"a{number}") for name in ("paid", "refunded")]
        answers = race(
            *[lambda e=e: promise(Caller(text), envelope(f"{e['event_type']}{e['idempotency_key']}"), e) for e in some]
        )
        assert sorted(answer.status_code for answer in answers) == [202, 422], [answer.content for answer in answers]
        (refused,) = [answer.json() for answer in answers if answer.status_code == 422]
        assert places(refused) == [("body.messages.1", "key_conflict")]
        assert OutboxMessage.objects.count() == 2 * (number + 1)  # nothing of the other request


@pytest.mark.parametrize("moment", ["before the messages", "after the messages"])
def test_a_crash_leaves_neither_key_nor_message(billing, monkeypatch, moment):
    real = by_http.Intake.store

    def crash(*args: Any) -> None:
        if moment == "after the messages":
            real(*args)
        raise RuntimeError("power cut")

    monkeypatch.setattr(by_http.Intake, "store", crash)
    assert promise(billing, envelope(), key="k").status_code == 500
    assert nothing_is_stored()
    monkeypatch.undo()
    assert promise(billing, envelope(), key="k").status_code == 202
    assert len(stored()) == 1


def test_key_answer_and_messages_are_one_transaction(billing, monkeypatch):
    seen = []
    real = by_http.Intake.store

    def look(*args: Any) -> None:
        real(*args)
        thread = threading.Thread(target=look_from_outside)
        thread.start()
        thread.join(PATIENCE)

    def look_from_outside() -> None:
        seen.append((OutboxMessage.objects.count(), IdempotencyKey.objects.count()))
        connections.close_all()

    monkeypatch.setattr(by_http.Intake, "store", look)
    promise(billing, envelope(), key="k")
    assert seen == [(0, 0)]
    assert (len(stored()), IdempotencyKey.objects.exclude(scope="publish").get().status_code) == (1, 202)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer: the second request waits")
def test_while_the_first_is_in_progress_the_second_is_told_at_once(db, monkeypatch):
    real, answers, text = by_http.Intake.store, [], token()

    def slow(*args: Any) -> None:
        real(*args)
        if not answers:
            answers.append(None)
            thread = threading.Thread(target=ask)
            thread.start()
            thread.join(PATIENCE)

    def ask() -> None:
        answers.append(promise(Caller(text), envelope(), key="k"))
        connections.close_all()

    monkeypatch.setattr(by_http.Intake, "store", slow)
    assert promise(Caller(text), envelope(), key="k").status_code == 202
    problem(answers[1], 409, "in_progress")
    assert len(stored()) == 1
