"""Messages that are promised by HTTP: what messages-in takes, all or none, once, by a token that may."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import msgspec
import pytest
from django.db import connection, connections

from config.fields import uuid7
from config.gate import InvalidRecord
from config.telemetry import metrics
from notifications.api.messages import MOST_MESSAGES
from notifications.api.tokens import issue
from notifications.mail.deliveries import Delivery, DeliveryStatus
from outbox.api import promises as by_http
from outbox.flow import Outbox
from outbox.intake.envelope import read
from outbox.models import IdempotencyKey, OutboxMessage
from tests.logged import lines
from tests.notifications.conftest import ME, PATIENCE, Caller, problem, race
from tests.outbox.conftest import clock  # noqa: F401 (a fixture)
from tests.outbox.intake.conftest import MAIL, TOPIC, envelope, record

PATH = "/v1/messages"
pytestmark = pytest.mark.django_db(transaction=True)


def token(name: str = "billing", channels: str = "email", **more: Any) -> str:
    return issue(name, ME, rate=0, channels=channels, **more)[1]


@pytest.fixture
def billing(db: None) -> Caller:
    return Caller(token())


def promise(caller: Caller, *envelopes: object, key: str = "") -> Any:
    return caller.post(PATH, {"messages": list(envelopes)}, key)


def stored() -> list[OutboxMessage]:
    return list(OutboxMessage.objects.order_by("id"))


def nothing_is_stored() -> bool:
    return not OutboxMessage.objects.exists() and not IdempotencyKey.objects.exists()


def places(refusal: dict[str, Any]) -> list[tuple[str, str]]:
    return [(error["where"], error["reason"]) for error in refusal["errors"]]


# -- What it takes -----------------------------------------------------------------------------------
def test_a_promise_becomes_a_message_that_waits_to_be_sent(billing, caplog):
    with caplog.at_level("INFO"):
        headers = {"X-Correlation-ID": "billing-run-7", "Idempotency-Key": "k"}
        body = json.dumps({"messages": [envelope()]})
        answer = billing.client.post(PATH, body, content_type="application/json", headers=headers)
    (message,) = stored()
    assert answer.status_code == 202
    expected = {"id": str(message.pk), "idempotency_key": "I-1/issued", "state": "pending"}
    assert answer.json() == {"messages": [expected]}
    about = (message.channel, message.event_type, message.aggregate, message.state, message.correlation_id)
    assert about == ("email", "invoice.issued", "invoice:I-1", "pending", "billing-run-7")
    assert IdempotencyKey.objects.get(scope="publish").key == "http:billing/I-1/issued"
    (line,) = [line for line in lines(caplog) if line["event"] == "messages_published"]
    assert (line["messages"], line["message_id"]) == (1, [str(message.pk)])
    assert [check for check in Outbox().verify() if not check.ok] == []


def test_messages_have_the_order_of_the_request_and_of_the_requests(billing):
    for first in (0, 3):
        promise(billing, *(envelope(f"k{9 - n}", event_type=f"e{n}") for n in range(first, first + 3)))
    assert [message.event_type for message in stored()] == [f"e{number}" for number in range(6)]


def test_a_message_stands_behind_that_of_a_host_whose_clock_is_ahead(billing, clock):  # noqa: F811
    clock.ahead(seconds=2)
    promise(billing, envelope("a", event_type="first"))
    clock.ahead(seconds=0)
    promise(billing, envelope("b", event_type="second"))
    assert [message.event_type for message in stored()] == ["first", "second"]


WRONG = [
    envelope(channel=[]),
    envelope(event_type="e" * 101),
    {key: value for key, value in envelope().items() if key != "aggregate"},
    envelope(payload=[]),
    envelope(payload="no JSON"),
    envelope(payload={**MAIL, "to": "nobody"}),
    envelope(payload={"to": "ada@example.com"}),
    envelope(expires_at="soon"),
    envelope(expires_at=1_700_000_000),
    envelope("k" * 201),
    [],
    None,
    7,
    "[]",
    {},
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: json.dumps(wrong)[-40:])
def test_the_verdict_is_that_of_messages_in(billing, wrong):
    with pytest.raises(InvalidRecord) as refused:
        read(record(msgspec.json.encode(wrong)), TOPIC)
    refusal = problem(promise(billing, wrong), 422, "invalid")
    assert places(refusal) == [("body.messages.0", refused.value.reason)]
    assert nothing_is_stored()


TAKEN = [
    envelope(7),
    envelope(payload=json.dumps(MAIL)),
    json.dumps(envelope()),
    envelope(more="is ignored"),
    envelope(expires_at="2099-01-01T00:00:00Z"),
    envelope(payload={**MAIL, "html": "", "from": None}),
]


@pytest.mark.parametrize("taken", TAKEN, ids=lambda taken: json.dumps(taken)[-40:])
def test_what_messages_in_takes_is_taken(billing, taken):
    assert read(record(msgspec.json.encode(taken)), TOPIC)
    assert promise(billing, taken).status_code == 202
    assert len(stored()) == 1


# -- All or none -------------------------------------------------------------------------------------
def test_of_a_hundred_with_one_wrong_nothing_is_promised_and_each_fault_is_named(billing):
    whole = [envelope(f"k{number}", aggregate=f"a{number}") for number in range(MOST_MESSAGES)]
    spoiled = [*whole[:41], envelope("k41", payload={**MAIL, "to": "Eve <eve@example.com>"}), *whole[42:]]
    before = counted("refused")
    refusal = problem(promise(billing, *spoiled, key="k"), 422, "invalid")
    assert places(refusal) == [("body.messages.41", "payload_refused")]
    assert "eve@" not in json.dumps(refusal)
    assert nothing_is_stored()
    assert counted("refused") - before == 1
    both = problem(promise(billing, *spoiled[:99], {}, key="k"), 422, "invalid")
    assert places(both) == [("body.messages.41", "payload_refused"), ("body.messages.99", "missing_field")]
    assert promise(billing, *whole, key="k").status_code == 202  # the refusal was not remembered
    assert [message.aggregate for message in stored()] == [f"a{number}" for number in range(MOST_MESSAGES)]


def counted(outcome: str) -> float:
    return metrics.INTAKE_RECORDS.labels("http", outcome)._value.get()


@pytest.mark.parametrize("number", [0, MOST_MESSAGES + 1])
def test_a_request_has_one_to_a_hundred(billing, number):
    refusal = problem(promise(billing, *[envelope()] * number), 422, "invalid")
    assert [error["where"] for error in refusal["errors"]] == ["body.messages"]


def test_a_body_beyond_the_limit_is_too_large(billing, settings):
    settings.API_MAX_BYTES = 2000
    problem(promise(billing, envelope(payload={**MAIL, "text": "x" * 2000})), 413, "too_large")


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


# -- Who may -----------------------------------------------------------------------------------------
def test_a_token_promises_for_its_channels_alone(billing):
    to_kafka = envelope("b", channel="kafka", payload={"topic": "t", "key": "k", "value": 1})
    refusal = problem(promise(billing, envelope("a"), to_kafka, {}), 403, "forbidden")
    assert refusal["detail"] == "this token promises messages of email, not 'kafka'"
    assert places(refusal) == [("body.messages.1", "channel_not_allowed")]
    assert nothing_is_stored()
    assert promise(Caller(token("both", "kafka, email")), envelope("a"), to_kafka).status_code == 202


def test_a_channel_that_nobody_handles_any_more_is_refused(billing, monkeypatch):
    handlers = {"kafka": by_http.Intake}
    monkeypatch.setattr("outbox.intake.envelope.handlers", lambda: handlers)
    problem(promise(billing, envelope()), 403, "forbidden")


@pytest.mark.parametrize("more", [{}, {"customer_id": "C-7"}])
def test_a_token_without_channels_neither_promises_nor_looks(more):
    caller = Caller(token(channels="", **more))
    problem(promise(caller, envelope()), 403, "forbidden")
    problem(caller.get(f"{PATH}/{uuid7()}"), 403, "forbidden")
    assert nothing_is_stored()


def test_a_token_with_channels_sees_no_orders(billing, order):
    assert "promises messages" in problem(billing.get(f"/v1/orders/{order.pk}"), 403, "forbidden")["detail"]
    problem(billing.create(), 403, "forbidden")


def test_the_rate_of_the_token_holds():
    caller = Caller(issue("slow", ME, rate=1, channels="email")[1])
    codes = [promise(caller, envelope(str(number))).status_code for number in range(3)]
    assert codes[0] == 202
    assert 429 in codes


# -- What became of it -------------------------------------------------------------------------------
def state_of(caller: Caller, message_id: object) -> Any:
    return caller.get(f"{PATH}/{message_id}")


def test_the_state_of_a_message_says_neither_what_it_says_nor_about_whom(billing):
    promise(billing, envelope())
    (message,) = stored()
    answer = state_of(billing, message.pk)
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "no-store"
    found = answer.json()
    assert found.keys() == {
        "id", "channel", "event_type", "state", "attempts", "created_at", "expires_at", "sent_at", "delivery",
    }  # fmt: skip
    assert (found["id"], found["state"], found["sent_at"]) == (str(message.pk), "pending", None)
    assert not [text for text in ("ada@", "Your invoice", "I-1") if text in answer.content.decode()]


@pytest.mark.parametrize("state", OutboxMessage.State.values)
def test_it_says_every_state_in_the_words_of_the_outbox(billing, state):
    promise(billing, envelope())
    OutboxMessage.objects.update(state=state)
    assert state_of(billing, stored()[0].pk).json()["state"] == state


@pytest.mark.parametrize("status", DeliveryStatus.values)
def test_it_says_what_the_provider_has_reported(billing, status):
    promise(billing, envelope())
    (message,) = stored()
    at = message.created_at
    Delivery.objects.create(
        message_id=message.pk, recipient="ada@example.com", provider="x", status=status, status_at=at, accepted_at=at,
        updated_at=at,
    )  # fmt: skip
    answer = state_of(billing, message.pk)
    assert answer.json()["delivery"]["state"] == status
    assert "ada@" not in answer.content.decode()


def test_a_message_of_another_channel_is_none(billing):
    promise(Caller(token("stock", "kafka")), envelope(channel="kafka", payload={"topic": "t", "key": "k", "value": 1}))
    (message,) = stored()
    refusal = problem(state_of(billing, message.pk), 404, "not_found")
    unknown = problem(state_of(billing, uuid7()), 404, "not_found")
    assert refusal.keys() == unknown.keys()
    problem(state_of(billing, "what"), 422, "invalid")


def test_a_message_expires_as_soon_as_its_promise_says(billing):
    soon = time.time() + 3600
    promise(billing, envelope(expires_at=int(soon * 1000)))
    assert abs(stored()[0].expires_at.timestamp() - soon) < 1
