"""A web process is frozen at any line of a bunch, past its claim of the key, while the same request takes over and sends it."""

from __future__ import annotations

import json
import linecache
import threading
import time
from collections import Counter
from types import SimpleNamespace

import pytest
from django.db import connection
from django.db.models import F

from config.kafka import Producer, client, producer, producer_internals
from notifications.api.tokens import issue
from outbox.api import idempotency
from outbox.models import IdempotencyKey
from tests.frozen import Point, frozen_at
from tests.notifications.conftest import ME, Caller
from throttler import api

pytestmark = pytest.mark.django_db(transaction=True)
PATH = "/v1/transactional"
BODY = {"recipients": ["ada@example.com", "bob@example.com"], "message": {"text": "hello"}}
PATIENCE = 2  # seconds, which the heir needs where nobody holds it up
TRACED = [idempotency.__file__, api.__file__, producer.__file__]


class Acknowledged(SimpleNamespace):
    """The client's word for a record that the broker has."""

    is_done = True

    def get(self, timeout: float) -> SimpleNamespace:
        return SimpleNamespace(partition=0, offset=0)


class World:
    """One clock for both processes, a producer for each, and what they handed to the client."""

    def __init__(self, monkeypatch):
        self.begun, self.passed, self.mine = [], 0.0, threading.local()
        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + self.passed)
        for module in (idempotency, producer):
            monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(client, "new_producer", lambda **options: SimpleNamespace(flush=lambda timeout: None))
        monkeypatch.setattr(producer_internals, "send_record", self.send_record)
        monkeypatch.setattr(api, "producer", self.producer)

    def producer(self) -> Producer:
        if not hasattr(self.mine, "producer"):
            self.mine.producer = Producer(patience=api.PATIENCE)
        return self.mine.producer

    def send_record(self, _client, _topic, _partition, _key, value, _headers) -> Acknowledged:
        self.begun.append(json.loads(value)["notification_id"])
        return Acknowledged()

    def a_minute_passes(self) -> None:
        self.passed += 61
        IdempotencyKey.objects.update(created_at=F("created_at") - idempotency.TAKEN_OVER_AFTER)


@pytest.fixture
def world(monkeypatch, settings):
    settings.SECURE_SSL_REDIRECT = False
    return World(monkeypatch)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="whoever is frozen in a transaction stops all others")
def test_frozen_at_any_line_nothing_is_handed_to_kafka_for_a_claim_that_is_over(world):
    token = issue("acme", ME, rate=0, customer_id="acme")[1]

    def frozen_once(at: Point | None) -> list[Point]:
        key = "-".join(map(str, at))[-60:] if at else "first"
        answers, before = [], []
        world.begun.clear()

        def heir() -> None:
            before.extend(world.begun)
            world.a_minute_passes()
            answers.append(Caller(token).post(PATH, BODY, key=key))

        ours = Caller(token)
        passed = frozen_at(at, lambda: answers.append(ours.post(PATH, BODY, key=key)), heir, TRACED, PATIENCE)
        done = ours.post(PATH, BODY, key=key)
        assert done.status_code == 202, at
        assert {answer.status_code for answer in answers} <= {202, 409, 503}, at
        ids = done.json()["ids"]
        twice = {pk for pk, times in Counter(world.begun).items() if times > 1}
        assert set(world.begun) == set(ids), at
        # What the client had before is repeated by the heir, as behind a crash: it is for the receiver to drop.
        late = twice - set(before)
        assert not late or "return producer_internals.send_record(" in linecache.getline(*at[:2]), at
        repeated.append(len(twice))
        return passed

    repeated: list[int] = []
    for point in frozen_once(None):
        frozen_once(point)
    assert {0, 1, 2} <= set(repeated)
