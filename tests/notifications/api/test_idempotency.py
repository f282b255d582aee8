"""Idempotency-Key: one effect and one answer, however often, however close together it is asked."""

from __future__ import annotations

import queue
import threading

import pytest
from django.db import connection, connections

from config.database.clock import database_now
from notifications.api.tokens import issue
from notifications.orders import changes
from notifications.orders.models import Order
from outbox.api import idempotency
from outbox.api.problems import Problem
from outbox.models import IdempotencyKey, OutboxMessage
from tests.crash.wire import wait_for
from tests.logged import lines
from tests.notifications.conftest import ME, PATIENCE, Caller, problem, race

pytestmark = pytest.mark.django_db(transaction=True)


def keys():
    return IdempotencyKey.objects.exclude(scope="publish")


# -- The same again ----------------------------------------------------------------------------------
def test_the_same_request_gets_the_same_bytes_and_does_nothing(caller):
    first, again = caller.create(key="k1"), caller.create(key="k1")
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first.headers
    assert Order.objects.count() == 1


def test_the_first_answer_stands_whatever_became_of_the_order(caller, order):
    first = caller.change(order.pk, "pay", key="k1")
    caller.change(order.pk, "refund", amount=1000)
    again = caller.change(order.pk, "pay", key="k1")
    assert (again.status_code, again.content) == (200, first.content)
    assert OutboxMessage.objects.count() == 2


def test_spaces_and_the_order_of_fields_do_not_make_another_body(caller, order):
    changes.change(order.pk, "pay")
    path = f"/v1/orders/{order.pk}/refund"
    first = caller.post(path, '{"amount":1}', key="k")
    again = caller.post(path, ' { "amount" : 1 } ', key="k")
    assert again.content == first.content
    assert Order.objects.get().refunded_amount == 1


def test_an_order_spelled_in_another_way_is_the_same_order(caller, order):
    """Each spelling once had a key of its own: one refund counted five times."""
    changes.change(order.pk, "pay")
    plain = str(order.pk)
    spellings = [plain, plain.upper(), plain.replace("-", ""), f"urn:uuid:{plain}", f"{{{plain}}}"]
    answers = [caller.change(spelling, "refund", key="k", amount=1) for spelling in spellings]
    assert [answer.status_code for answer in answers] == [200] * 5
    assert len({answer.content for answer in answers}) == 1
    assert Order.objects.get().refunded_amount == 1


def test_another_body_under_the_key_is_refused(caller, order):
    changes.change(order.pk, "pay")
    caller.change(order.pk, "refund", key="k", amount=1)
    answer = caller.change(order.pk, "refund", key="k", amount=2)
    assert (answer.status_code, answer.json()["code"]) == (422, "key_reused")
    assert Order.objects.get().refunded_amount == 1


def test_a_key_belongs_to_its_token_and_its_route(caller, order):
    other = Caller(issue("other", ME, rate=0)[1])
    one, two = caller.create(key="k").json(), other.create(key="k").json()
    assert one["id"] != two["id"]
    assert caller.change(one["id"], "pay", key="k").status_code == 200
    assert caller.change(two["id"], "pay", key="k").status_code == 200
    assert keys().count() == 4


def test_a_decided_refusal_is_remembered(caller, order):
    first = caller.change(order.pk, "refund", key="k", amount=5)
    assert first.status_code == 409
    changes.change(order.pk, "pay")
    again = caller.change(order.pk, "refund", key="k", amount=5)
    assert (again.status_code, again.content) == (409, first.content)
    assert again.headers["Content-Type"] == "application/problem+json"
    assert Order.objects.get().refunded_amount == 0


def test_what_was_not_decided_is_asked_anew(caller):
    assert caller.create(key="k", total_amount=0).status_code == 422
    assert caller.create(key="k").status_code == 201
    assert keys().count() == 1


# -- All or nothing ----------------------------------------------------------------------------------
@pytest.mark.parametrize("moment", ["before the change", "after the change"])
def test_a_crash_leaves_neither_key_nor_order_nor_message(caller, order, monkeypatch, moment, caplog):
    real = changes.carry_out

    def crash(planned):
        if moment == "after the change":
            real(planned)
        raise RuntimeError("power cut")

    monkeypatch.setattr(changes, "carry_out", crash)
    assert caller.change(order.pk, "pay", key="k").status_code == 500
    [failed] = [line for line in lines(caplog) if line["event"] == "api_failed"]
    assert "in crash" in failed["exception"]
    assert not IdempotencyKey.objects.exists()
    assert not OutboxMessage.objects.exists()
    assert Order.objects.get().status == "pending"
    monkeypatch.undo()
    assert caller.change(order.pk, "pay", key="k").status_code == 200


def test_key_answer_and_change_are_one_transaction(caller, order, monkeypatch):
    """Nobody else ever sees the order changed and the key missing, or the key without its answer."""
    seen = []
    real = changes.carry_out

    def look(planned):
        after = real(planned)
        thread = threading.Thread(target=look_from_outside)
        thread.start()
        thread.join(PATIENCE)
        return after

    def look_from_outside():
        seen.append((Order.objects.get().status, keys().count()))
        connections.close_all()

    monkeypatch.setattr(changes, "carry_out", look)
    caller.change(order.pk, "pay", key="k")
    assert seen == [("pending", 0)]
    row = keys().get()
    assert (row.status_code, Order.objects.get().status) == (200, "paid")
    assert '"status":"paid"' in row.answer


# -- At the same time --------------------------------------------------------------------------------
def test_of_the_same_request_at_once_one_has_an_effect():
    callers = [Caller(text) for text in [issue("tests", ME, rate=0)[1]] * 6]
    for number in range(5):
        answers = race(*[lambda c=c, n=number: c.create(key=f"k{n}") for c in callers])
        codes = sorted({answer.status_code for answer in answers})
        assert codes in ([201], [201, 409]), [answer.content for answer in answers if answer.status_code != 201]
        assert len({answer.content for answer in answers if answer.status_code == 201}) == 1
        assert Order.objects.count() == number + 1


@pytest.mark.skipif(connection.vendor != "mysql", reason="elsewhere nothing is locked to count rows")
def test_who_waits_for_a_key_keeps_nobody_from_the_next_number_of_a_row(monkeypatch):
    """One holds the known key and asks for a number. With the numbers in the hand of the other, both waited 50 s."""
    text, real = issue("tests", ME, rate=0)[1], idempotency.written_elsewhere
    first = Caller(text).create(key="k")
    locked, session, turns = threading.Event(), queue.SimpleQueue(), iter(["holds the key", "has the numbers"])

    def look(name, rows):
        turn = next(turns, "")
        if turn == "holds the key":
            assert not real(name, rows)
            locked.set()
            other = session.get(timeout=PATIENCE)
            # InnoDB shows an old picture to whoever looks again within a tenth of a second.
            wait_for(lambda: waits_for_a_lock(other), PATIENCE, "the other to wait", pause=0.3)
        elif turn:  # as it was before the key was inserted
            session.put(session_id())
            assert locked.wait(PATIENCE)
        else:
            return real(name, rows)
        return False

    monkeypatch.setattr(idempotency, "written_elsewhere", look)
    answers = race(*[lambda c=c: c.create(key="k") for c in [Caller(text), Caller(text)]])
    assert [(answer.status_code, answer.content) for answer in answers] == [(201, first.content)] * 2


def session_id():
    with connection.cursor() as cursor:
        cursor.execute("SELECT CONNECTION_ID()")
        return cursor.fetchone()[0]


def waits_for_a_lock(session):
    with connection.cursor() as cursor:
        cursor.execute("SELECT trx_state FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = %s", [session])
        return cursor.fetchone() == ("LOCK WAIT",)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer: the second request waits")
def test_while_the_first_is_in_progress_the_second_is_told_at_once(caller, order, monkeypatch):
    real, started, go_on = changes.carry_out, threading.Event(), threading.Event()

    def slow(planned):
        started.set()
        assert go_on.wait(PATIENCE)
        return real(planned)

    monkeypatch.setattr(changes, "carry_out", slow)
    answers = []
    text = issue("second", ME, rate=0)[1]

    def first():
        answers.append(Caller(text).change(order.pk, "pay", key="k"))
        connections.close_all()

    thread = threading.Thread(target=first)
    thread.start()
    assert started.wait(PATIENCE)
    second = Caller(text).change(order.pk, "pay", key="k")
    go_on.set()
    thread.join(PATIENCE)
    assert (second.status_code, second.json()["code"]) == (409, "in_progress")
    assert second.headers["Retry-After"] == "1"
    assert answers[0].status_code == 200
    third = Caller(text).change(order.pk, "pay", key="k")
    assert third.content == answers[0].content


def test_a_request_that_gave_up_leaves_its_key_free(caller, order, monkeypatch):
    def refuse(*args):
        raise changes.Stale

    monkeypatch.setattr(changes, "PATIENCE", 0.01)
    monkeypatch.setattr(changes, "carry_out", refuse)
    problem(caller.change(order.pk, "pay", key="k"), 503, "unavailable")
    monkeypatch.undo()
    assert caller.change(order.pk, "pay", key="k").status_code == 200


def test_a_known_key_is_answered_without_writing(caller):
    caller.create(key="k")
    before = list(keys().values())
    caller.create(key="k")
    assert list(keys().values()) == before


def test_of_two_that_take_over_a_key_at_once_one_has_it(monkeypatch):
    """Both have seen the moment of the process that died."""
    asked = idempotency.Asked.of("token 1 POST /bunch", "k", b"{}")
    idempotency.insert_key(asked, database_now() - 2 * idempotency.TAKEN_OVER_AFTER, 7)
    in_progress = idempotency._in_progress

    def behind_another(claim):
        IdempotencyKey.objects.update(token=8, created_at=database_now())
        return in_progress(claim)

    monkeypatch.setattr(idempotency, "_in_progress", behind_another)
    with pytest.raises(Problem, match="in_progress"):
        idempotency._claim(asked, 9)
    assert IdempotencyKey.objects.get().token == 8
