"""Messages that are promised by HTTP: what messages-in takes, all or none, once, by a token that may."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from config.database.clock import database_now
from config.fields import uuid7
from config.gate import InvalidRecord
from notifications.api.messages import MOST_MESSAGES
from notifications.api.tokens import ApiToken, issue
from notifications.mail.deliveries import Delivery, DeliveryStatus
from outbox.api import promises as by_http
from outbox.flow import Outbox
from outbox.intake.envelope import read
from outbox.models import IdempotencyKey, OutboxMessage
from tests.logged import lines
from tests.notifications.api.conftest import PATH, counted, nothing_is_stored, places, promise, stored, token
from tests.notifications.conftest import ME, Caller, problem
from tests.outbox.conftest import clock  # noqa: F401 (a fixture)
from tests.outbox.intake.conftest import MAIL, TOPIC, envelope, record

pytestmark = pytest.mark.django_db(transaction=True)


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


@pytest.mark.parametrize("number", [0, MOST_MESSAGES + 1])
def test_a_request_has_one_to_a_hundred(billing, number):
    refusal = problem(promise(billing, *[envelope()] * number), 422, "invalid")
    assert [error["where"] for error in refusal["errors"]] == ["body.messages"]


UNREADABLE = {
    "not a number": (b"NaN", "malformed"),
    "infinite": (b"-Infinity", "malformed"),
    "beyond a float": (b"1e999", "invalid"),
    "beyond an integer": (b"9" * 5000, "invalid"),
    "half a character": (b'"\\ud800"', "malformed"),
    "a zero": (b'"\\u0000"', "malformed"),
    "no UTF-8": (b'"\xff"', "malformed"),
    "deep": (b"[" * 5000 + b"]" * 5000, "malformed"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_of_a_hundred_with_one_that_nobody_can_read_nothing_is_promised(name):
    value, code = UNREADABLE[name]
    answer = Caller(token("stock", "kafka")).post(PATH, hundred_with(value), "k")
    problem(answer, 422 if code == "invalid" else 400, code)
    assert nothing_is_stored()


@pytest.mark.parametrize("value", [b"9" * 400, b"-1e308", b'"\xf0\x9f\x99\x82"', b"[" * 20 + b"]" * 20, b'{"n": 0.1}'])
def test_what_can_be_read_is_stored_as_it_is(value):
    assert Caller(token("stock", "kafka")).post(PATH, hundred_with(value), "k").status_code == 202
    assert len(stored()) == MOST_MESSAGES
    assert msgspec.json.decode(stored()[-1].payload)["value"] == msgspec.json.decode(value)


def hundred_with(value: bytes) -> bytes:
    """A hundred messages for Kafka, the last of them with this value."""
    mark = "HERE"
    some = [
        envelope(
            f"k{number}", channel="kafka", payload={"topic": "t", "key": "k", "value": mark if number == 99 else 1}
        )
        for number in range(MOST_MESSAGES)
    ]
    return json.dumps({"messages": some}).encode().replace(b'"HERE"', value)


def test_a_body_beyond_the_limit_is_too_large(billing, settings):
    settings.API_MAX_BYTES = 2000
    problem(promise(billing, envelope(payload={**MAIL, "text": "x" * 2000})), 413, "too_large")


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


def test_a_token_that_is_over_or_revoked_promises_nothing_and_its_heir_goes_on(billing):
    over = token(expires_at=database_now() + timedelta(hours=1))
    ApiToken.objects.exclude(expires_at=None).update(expires_at=database_now())
    problem(promise(Caller(over), envelope()), 401, "token_expired")
    first = promise(billing, envelope()).json()
    ApiToken.objects.update(revoked_at=database_now())
    problem(promise(billing, envelope("new")), 401, "unauthorized")
    problem(state_of(billing, first["messages"][0]["id"]), 401, "unauthorized")
    assert promise(Caller(token()), envelope()).json() == first
    assert len(stored()) == 1


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
