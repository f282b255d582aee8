"""The lease of a notifier: whoever lost it sends nothing, and whoever lives never waits for its own, whatever a COMMIT answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from config.database.clock import database_now
from outbox.notices import incidents, sender
from outbox.notices.addresses import SenderProcess
from outbox.notices.models import LEASE, Notice, Subscription
from outbox.notices.sender import claim, deliver, open_attempts
from tests.processes.proxy import Cutter

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def row(receiver: Any, due: Callable[..., Subscription]) -> Subscription:
    return due(receiver.plain)


def end_lease() -> None:
    """In the database, as time does."""
    past = database_now() - timedelta(seconds=1)
    Subscription.objects.exclude(lease_until=None).update(lease_until=past)
    Notice.objects.filter(state="sending").update(tried_at=past - LEASE)


@contextmanager
def stopped_before(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, meanwhile: Callable[[], object]
) -> Iterator[None]:
    """The sender stands still once, before it calls `name`, while `meanwhile` goes on."""
    act, stopped = getattr(owner, name), []

    def standing_still(*given: Any) -> object:
        if not stopped:
            stopped.append(name)
            meanwhile()
        return act(*given)

    monkeypatch.setattr(owner, name, standing_still)
    yield
    assert stopped


# -- Stopped between the look at the lease and the act -------------------------------------------------------
def test_who_is_stopped_before_it_says_that_it_sends_leaves_it_to_the_other(row, receiver, monkeypatch):
    def another_sends() -> None:
        end_lease()
        assert deliver(row.pk)

    with stopped_before(monkeypatch, sender, "open_attempts", another_sends):
        assert deliver(row.pk)
    assert (len(receiver.bodies), Notice.objects.get().state) == (1, "sent")
    assert "repeat" not in receiver.bodies[0]["message"]
    assert Subscription.objects.get().lease_token is None


def test_who_is_stopped_and_goes_on_before_anybody_else_sends_once(row, receiver, monkeypatch):
    with stopped_before(monkeypatch, sender, "open_attempts", end_lease):
        assert deliver(row.pk)
    assert not deliver(row.pk)
    assert len(receiver.bodies) == 1


def test_who_is_stopped_in_the_middle_is_told_again_with_a_mark_and_sends_nothing_itself(row, receiver, monkeypatch):
    """The program that sends does not wait for ever: when its worker wakes up after the lease, it has ended."""

    def long_after() -> None:
        end_lease()
        incidents.look(database_now())
        assert Notice.objects.get().state == "unsure"
        Notice.objects.update(due_at=database_now())
        assert deliver(row.pk)

    stopped: list[SenderProcess] = []

    def ended(sender_process: SenderProcess, words: Any, go: Any = SenderProcess.go) -> Any:
        if not stopped:
            stopped.append(sender_process)
            long_after()
            sender_process.process.terminate()  # as its alarm does
            sender_process.process.wait(10)
        return go(sender_process, words)

    monkeypatch.setattr(SenderProcess, "go", ended)
    assert deliver(row.pk)
    (body,) = receiver.bodies
    assert "may be a repeat" in body["message"]
    assert Notice.objects.get().state == "sent"


def test_one_whose_program_had_ended_has_not_sent_and_is_due_at_once(row, receiver, monkeypatch):
    def ended(sender_process: SenderProcess, words: Any, go: Any = SenderProcess.go) -> Any:
        sender_process.process.terminate()
        sender_process.process.wait(10)
        return go(sender_process, words)

    with monkeypatch.context() as patch:
        patch.setattr(SenderProcess, "go", ended)
        assert deliver(row.pk)
    assert (Notice.objects.get().state, Notice.objects.get().repeat) == ("waiting", False)
    assert deliver(row.pk)
    assert "repeat" not in receiver.bodies[0]["message"]


# -- A COMMIT whose answer is lost ---------------------------------------------------------------------------
STEPS = {"claim": "lease_token", "open_attempts": 'UPDATE "outbox_notice"', "settle": '"said_over" = '}


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_commit_whose_answer_is_lost_holds_up_no_notice_and_makes_none_doubtful(row, receiver, step, moment):
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no connection that could be cut")
    quote = "`" if connection.vendor == "mysql" else '"'
    given = connection.settings_dict
    cutter = Cutter(f"db://of:ours@{given['HOST']}:{given['PORT']}/", STEPS[step].replace('"', quote).encode(), moment)
    connection.close()
    connection.settings_dict = given | {"HOST": "127.0.0.1", "PORT": str(cutter.port)}
    try:
        assert deliver(row.pk)
    finally:
        connection.close()
        connection.settings_dict = given
        cutter.close()
    assert cutter.cuts == 1
    assert [body["title"] for body in receiver.bodies] == ["[Spillway] Dead: worker 7"]
    assert (Notice.objects.get().state, Notice.objects.get().tries) == ("sent", 1)
    assert Subscription.objects.get().lease_token is None


def test_a_claim_that_was_lost_is_left_to_who_holds_it(row):
    late = claim(row.pk, database_now())
    end_lease()
    assert claim(row.pk, database_now())
    assert late is not None
    assert not open_attempts(late)
