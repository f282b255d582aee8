"""publish() of the client means what publish() inside Spillway means, on every database."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction

from outbox.intake.envelope import read
from tests.client.conftest import promise
from tests.outbox.intake.conftest import MAIL, record


def test_outside_a_transaction_nothing_is_promised(promises):
    from spillway_client import publish

    with pytest.raises(RuntimeError, match="outside a transaction"):
        publish("invoice.issued", "invoice:1", MAIL, idempotency_key="1")
    assert not promises.exists()


def test_what_is_rolled_back_was_not_promised(promises):
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        promise(1)
        raise ZeroDivisionError
    assert not promises.exists()


def test_a_known_key_changes_nothing_and_is_refused_for_another_message(promises):
    from spillway_client import IdempotencyConflict

    first = promise(1)
    with transaction.atomic():
        assert promise(1) == first
        with pytest.raises(IdempotencyConflict, match="'1/issued' was used"):
            promise(1, event_type="invoice.paid")
        promise(2)  # the transaction goes on
    assert promises.count() == 2


def test_keys_that_a_collation_takes_for_one_are_two(promises):
    assert len({promise(1, idempotency_key=key) for key in ("a", "A", "ä", "a ")}) == 4


def test_its_envelope_is_read_by_spillway_with_every_digit(promises):
    payload = {**MAIL, "text": 'ä€𝄞 "\\ {}\n', "total": 12345678901234567890.5}
    promise(1, payload=payload, expires_at=datetime(2031, 1, 1, 12, 30, tzinfo=UTC), idempotency_key="ключ/1")
    row = promises.get()
    said = read(record(row.envelope(), headers=[("producer", b"billing")]), "messages-in")
    assert said.key == "messages-in/ключ/1"
    assert (said.channel, said.event_type, said.aggregate) == ("email", "invoice.issued", "invoice:1")
    assert (said.given, said.expires_at) == (payload, datetime(2031, 1, 1, 12, 30, tzinfo=UTC))
    assert json.loads(row.payload) == payload
    assert max(row.payload) == "€", "Django 4.2 could not store it in MySQL"


def test_the_longest_key_is_taken_by_spillway(promises, settings):
    settings.MESSAGES_IN = {"messages-in": {"billing": ["email"]}}
    promise(1, idempotency_key="k" * 180)
    said = read(record(promises.get().envelope(), headers=[("producer", b"billing")]), "messages-in")
    assert len(said.key) == 200
    with pytest.raises(ValueError, match="idempotency_key: 1 to 180 characters"):
        promise(1, idempotency_key="k" * 181)


WRONG = {
    "event_type: 1 to 100": {"event_type": ""},
    "aggregate: 1 to 200": {"aggregate": "a" * 201},
    "idempotency_key: 1 to 180": {"idempotency_key": "a\x00"},
    "channel: 1 to 50": {"channel": None},
    "surrogates not allowed": {"aggregate": "\ud800"},
    "payload: a dict is needed": {"payload": [1]},
    "payload: a mail needs 'subject'": {"payload": {"to": "ada@example.com", "text": ""}},
    "payload: 500047 bytes": {"payload": {"to": "ada@example.com", "subject": "", "text": "x" * 500_000}},
    r"payload: U\+0000": {"payload": {**MAIL, "text": "a\x00"}},
    "Out of range float": {"payload": {**MAIL, "sum": float("nan")}},
    "expires_at: a time with its zone": {"expires_at": datetime(2031, 1, 1)},
}


@pytest.mark.parametrize("message", WRONG)
def test_what_could_never_be_sent_is_refused_at_once(promises, message):
    with pytest.raises(ValueError, match=message):
        promise(1, **WRONG[message])
    assert not promises.exists()


def test_a_backslash_before_u0000_is_a_text(promises):
    promise(1, payload={**MAIL, "text": "\\u0000"})
    assert json.loads(promises.get().payload)["text"] == "\\u0000"


def test_with_a_connector_no_relay_waits_for_it(promises, settings):
    settings.SPILLWAY_CLIENT = {"DEBEZIUM": True}
    promise(1)
    assert promises.get().state == "captured"


SETTINGS: dict[str, Any] = {
    "SPILLWAY_CLIENT: a dict": "kafka:9092",
    "SPILLWAY_CLIENT: TOPICS is no option; there are BOOTSTRAP_SERVERS, TOPIC": {"TOPICS": "x"},
    r'SPILLWAY_CLIENT\["BATCH"\]: a number of 1 or more': {"BATCH": 0},
    r'SPILLWAY_CLIENT\["LEASE_SECONDS"\]: a number': {"LEASE_SECONDS": True},
    r'SPILLWAY_CLIENT\["BOOTSTRAP_SERVERS"\]: str is needed': {"BOOTSTRAP_SERVERS": ["a:1"]},
    r'SPILLWAY_CLIENT\["KAFKA"\]: acks is set by the relay': {"KAFKA": {"acks": 0}},
    r'SPILLWAY_CLIENT\["RETENTION_DAYS"\]: a number of 0': {"RETENTION_DAYS": None},
    r'SPILLWAY_CLIENT\["TOPIC"\]: a name': {"TOPIC": "", "PRODUCER": "billing"},
}


@pytest.mark.parametrize("message", SETTINGS)
def test_a_wrong_setting_has_one_line_wherever_it_is_read(promises, settings, message):
    settings.SPILLWAY_CLIENT = SETTINGS[message]
    with pytest.raises(ImproperlyConfigured, match=message):
        promise(1)
    assert [error.id for error in run_checks() if "SPILLWAY_CLIENT" in error.msg] == ["spillway_client.E001"]
