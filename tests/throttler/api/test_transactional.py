"""POST /v1/transactional: all of a bunch or a refusal, once, with the same ids whenever it is sent again."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import OperationalError, connection
from django.db.models import F

from config.database.clock import database_now
from config.kafka import Failed, Sent
from notifications.api.tokens import issue
from outbox.api import idempotency
from outbox.api.problems import Answer
from outbox.models import IdempotencyKey
from tests.notifications.conftest import ME, PATIENCE, Caller, problem, race
from throttler import api
from throttler.models import Customer, Lane, LaneOwner

pytestmark = pytest.mark.django_db(transaction=True)
PATH = "/v1/transactional"
BODY = {"recipients": ["ada@example.com", "bob@example.com"], "message": {"text": "hello"}}


class Topic:
    """Stands for Kafka: keeps what was sent, and fails while `broken`."""

    def __init__(self):
        self.records, self.broken, self.before = [], False, lambda: None

    def send_all(self, records, until):
        self.before()
        self.records += records
        return [Failed("away") if self.broken and index else Sent(0, 0) for index, _ in enumerate(records)]


@pytest.fixture
def topic(monkeypatch, settings):
    settings.SECURE_SSL_REDIRECT = False
    found = Topic()
    monkeypatch.setattr(api, "producer", lambda: found)
    return found


@pytest.fixture
def sender(topic):
    return Caller(issue("acme", ME, rate=0, customer_id="acme")[1])


def test_a_bunch_becomes_single_notifications(sender, topic):
    answer = sender.post(PATH, {**BODY, "ttl_seconds": 60})
    assert answer.status_code == 202
    assert answer.json() | {"ids": 0} == {"ids": 0, "backlog": None, "eta_seconds": None, "would_expire": None}
    values = [json.loads(record.value) for record in topic.records]
    assert [value["notification_id"] for value in values] == answer.json()["ids"]
    assert [value["recipient"] for value in values] == BODY["recipients"]
    assert {
        (record.key, value["customer_id"], value["ttl_seconds"])
        for record, value in zip(topic.records, values, strict=True)
    } == {("acme", "acme", 60)}
    assert {record.headers for record in topic.records} == {
        (("correlation_id", answer.headers["X-Correlation-ID"].encode()),)
    }


def test_a_token_without_a_customer_is_refused(topic):
    problem(Caller(issue("orders", ME, rate=0)[1]).post(PATH, BODY), 403, "forbidden")
    assert not topic.records


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"recipients": []}, "body.recipients"),
        ({"recipients": ["x"] * 4}, "body.recipients"),
        ({"ttl_seconds": 21_601}, "body.ttl_seconds"),
        ({"ttl_seconds": -1}, "body.ttl_seconds"),
        ({"ttl_seconds": "60"}, "body.ttl_seconds"),
        ({"recipients": ["x", "y" * 300], "message": {"text": "x" * 120}}, "body.recipients.1"),
    ],
)
def test_nothing_is_sent_of_a_bunch_with_a_wrong_value(sender, topic, settings, changed, where):
    settings.THROTTLER_MAX_RECIPIENTS, settings.THROTTLER_MAX_MESSAGE_BYTES = 3, 512
    refused = problem(sender.post(PATH, {**BODY, **changed}), 422, "invalid")
    assert where in {error["where"] for error in refused["errors"]}
    assert "Value error" not in str(refused)
    assert not topic.records


def test_the_same_request_again_sends_nothing(sender, topic):
    first, again = (sender.post(PATH, BODY, key="k") for _ in range(2))
    assert (again.status_code, again.content, len(topic.records)) == (202, first.content, 2)
    assert again.headers["Idempotency-Replayed"] == "true"


def test_after_a_missing_acknowledgement_the_same_ids_are_sent_again(sender, topic):
    topic.broken = True
    away = problem(sender.post(PATH, BODY, key="k"), 503, "unavailable")
    assert "1 of 2 were not acknowledged by Kafka" in away["detail"]
    assert "database" not in str(away)
    problem(sender.post(PATH, {**BODY, "message": {}}, key="k"), 422, "key_reused")
    topic.broken = False
    assert sender.post(PATH, BODY, key="k").status_code == 202
    ids = [json.loads(record.value)["notification_id"] for record in topic.records]
    assert ids[:2] == ids[2:]


def test_two_at_once_send_one_bunch(sender, topic):
    inside, over = threading.Event(), threading.Event()

    def wait():
        inside.set()
        assert over.wait(PATIENCE)

    def second():
        assert inside.wait(PATIENCE)
        try:
            return sender.post(PATH, BODY, key="k")
        finally:
            over.set()

    topic.before = wait
    first, other = race(lambda: sender.post(PATH, BODY, key="k"), second)
    assert first.status_code == 202
    problem(other, 409, "in_progress")
    assert len(topic.records) == 2


def dead_for(seconds):
    """As a process that was killed after it claimed the key leaves it."""
    IdempotencyKey.objects.update(status_code=None, answer="", created_at=F("created_at") - timedelta(seconds=seconds))


def test_a_request_whose_process_died_is_taken_over_after_a_minute(sender, topic):
    first = sender.post(PATH, BODY, key="k")
    dead_for(50)
    problem(sender.post(PATH, BODY, key="k"), 409, "in_progress")
    dead_for(11)
    again = sender.post(PATH, BODY, key="k")
    assert (again.status_code, again.json()["ids"]) == (202, first.json()["ids"])
    assert len(topic.records) == 4


def test_who_was_taken_over_writes_no_answer(sender, topic):
    """A process that slept for more than a minute finds that the key is another's."""
    topic.before = lambda: IdempotencyKey.objects.update(created_at=F("created_at") + timedelta(seconds=61))
    problem(sender.post(PATH, BODY, key="k"), 409, "in_progress")
    assert IdempotencyKey.objects.get(key="k").status_code is None


def test_the_forecast_comes_from_the_read_model(sender):
    now = database_now()
    Customer.objects.create(customer_id="acme", rates="2/s", ttl_seconds=10, created_at=now, updated_at=now)
    Lane.objects.create(customer_id="acme", partition=1, backlog=19, first=0, drained=0, seen=9, updated_at=now)
    LaneOwner.objects.create(name="a", updated_at=now)
    expected = {"backlog": 19, "eta_seconds": 11, "would_expire": 1}
    assert sender.post(PATH, BODY).json().items() >= expected.items()


# -- What waits between the claim of a key and its action -------------------------------------------------------
class SlowClaim:
    """The claim of the key is written a minute after it was begun, as behind a lock; then `meanwhile` happens."""

    def __init__(self, monkeypatch, meanwhile=lambda: None):
        self.asked, self.meanwhile = 0, meanwhile
        monkeypatch.setattr(idempotency, "database_now", self.now)

    def now(self):
        self.asked += 1
        if self.asked == 1:
            return database_now() - timedelta(seconds=61)
        if self.asked == 2:
            self.meanwhile()
        return database_now()


def test_who_waits_longer_than_its_claim_holds_leaves_the_deed_to_who_took_over(sender, topic, monkeypatch):
    answers = []
    SlowClaim(monkeypatch, lambda: answers.append(sender.post(PATH, BODY, key="k")))
    late = sender.post(PATH, BODY, key="k")
    assert answers[0].status_code == 202
    problem(late, 409, "in_progress")
    assert len(topic.records) == 2
    assert sender.post(PATH, BODY, key="k").content == answers[0].content


def test_who_waits_longer_than_its_claim_holds_goes_on_where_nobody_took_over(sender, topic, monkeypatch):
    SlowClaim(monkeypatch)
    topic.before = lambda: problem(sender.post(PATH, BODY, key="k"), 409, "in_progress")
    assert sender.post(PATH, BODY, key="k").status_code == 202
    assert len(topic.records) == 2


def test_between_claim_and_deed_nothing_is_read(sender, topic, monkeypatch):
    """A lock on a table that the forecast reads may outlast the claim."""
    asked = []
    monkeypatch.setattr(api, "expected", lambda *args: asked.append("forecast") or {})
    monkeypatch.setattr(api, "once_outside", lambda *args: asked.append("claim") or Answer(202, "{}"))
    assert sender.post(PATH, BODY, key="k").status_code == 202
    assert asked == ["forecast", "claim"]


@pytest.mark.parametrize("number", range(2))
def test_a_claim_or_an_answer_whose_commit_goes_unanswered_is_found_again(sender, topic, monkeypatch, number):
    """The session breaks behind the commit that writes the key, or that writes its answer."""
    sent = sender.post(PATH, BODY, key="before")
    with unanswered(IdempotencyKey._meta.db_table, number) as broken:
        first = sender.post(PATH, BODY, key="k")
    assert broken
    assert (sent.status_code, first.status_code) == (202, 202)
    assert len(topic.records) == 4
    assert sender.post(PATH, BODY, key="k").content == first.content


def test_a_claim_that_is_renewed_without_an_answer_is_found_again(sender, topic, monkeypatch):
    SlowClaim(monkeypatch)
    with unanswered(IdempotencyKey._meta.db_table, 1) as broken:
        assert sender.post(PATH, BODY, key="k").status_code == 202
    assert broken
    assert len(topic.records) == 2


@pytest.mark.parametrize("number", range(2))
def test_a_take_over_whose_commit_goes_unanswered_is_found_again(sender, topic, number):
    sender.post(PATH, BODY, key="k")
    dead_for(61)
    with unanswered(IdempotencyKey._meta.db_table, 1 + number) as broken:
        assert sender.post(PATH, BODY, key="k").status_code == 202
    assert broken
    assert len(topic.records) == 4


@contextmanager
def unanswered(table, number):
    """Behind the commit of this thread's write of that number to `table` the answer does not come; yields what has broken."""
    writes, broken = [], []

    def statement(execute, sql, params, many, context):
        result = execute(sql, params, many, context)
        if sql.startswith(("INSERT", "UPDATE")) and table in sql:
            writes.append(sql)
            if len(writes) == number + 1:
                connection.on_commit(lose) if connection.in_atomic_block else lose()
        return result

    def lose():
        broken.append(True)
        raise OperationalError(2013, "Lost connection to server during query")

    with connection.execute_wrapper(statement):
        yield broken
