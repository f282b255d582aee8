"""Between a look at the lease and the act a worker is frozen, waits for a lock, or loses its session: nothing leaves twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import OperationalError, connection, connections

from config.database.clock import database_now
from config.telemetry import metrics
from outbox.delivery.claim import Claim, claim, unheard
from outbox.delivery.deliver import deliver
from outbox.delivery.overdue import rescue
from outbox.messages.publish import confirm
from outbox.models import DeliveryAttempt, OutboxMessage
from outbox.verify import checks
from tests.crash.wire import wait_for
from tests.lost_sessions import lost_answer, lost_statement
from tests.outbox.scripted import PERMANENT, Scripted, message, promise

pytestmark = pytest.mark.django_db(transaction=True)
NEVER = threading.Event()
PATIENCE = 30
LOCK = {
    "sqlite": ["BEGIN IMMEDIATE"],  # all tables at once
    "postgresql": ["BEGIN", "LOCK TABLE outbox_deliveryattempt IN SHARE MODE"],
    "mysql": ["LOCK TABLES outbox_deliveryattempt READ"],
}
UNLOCK = {"mysql": "UNLOCK TABLES"}
WAITING = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND state LIKE 'Waiting for%'",
}


def end_leases(*ids) -> None:
    rows = OutboxMessage.objects.filter(state="processing")
    rows.filter(pk__in=ids).update(lease_until=database_now() - timedelta(seconds=1))


def frozen_behind_the_look(handler: Scripted, meanwhile: Callable[[], None]) -> None:
    """The worker has looked at its lease; before it opens the attempts, this happens."""

    def screen(messages):
        handler.screen = lambda messages: {}
        meanwhile()
        return {}

    handler.screen = screen


def verified() -> bool:
    return all(check.ok for check in checks())


def outcomes() -> list[str]:
    return sorted(DeliveryAttempt.objects.values_list("outcome", flat=True))


def test_what_another_worker_has_in_hand_since_the_look_is_not_sent_beside_it(install):
    memory = install(Scripted())
    pk = promise()
    found, successors = claim(memory, "poll", 10), []

    def another():
        end_leases(pk)
        assert rescue(database_now()) == 1
        successors.append(claim(memory, "poll", 10))

    frozen_behind_the_look(memory, another)
    assert deliver(found, memory, NEVER) == 0
    assert (memory.accepted, outcomes()) == ([], [])
    assert deliver(successors[0], memory, NEVER) == 1
    assert (memory.accepted, verified()) == ([pk], True)


@pytest.mark.parametrize("number", [1, 2])
def test_what_an_earlier_try_is_proven_to_have_sent_since_the_look_is_not_sent_again(install, number):
    memory = install(Scripted(window=number))
    pks = [promise(f"order:{turn}") for turn in range(number)]
    found = claim(memory, "poll", 10)
    frozen_behind_the_look(memory, lambda: confirm({pks[0]: "esp-7"}, database_now()))
    assert deliver(found, memory, NEVER) == number - 1
    assert (memory.accepted, message(pks[0]).receipt) == (pks[1:], "esp-7")


def test_what_another_worker_has_sent_since_the_look_is_not_sent_again(install):
    memory = install(Scripted())
    pk = promise()
    found = claim(memory, "poll", 10)

    def another():
        end_leases(pk)
        assert rescue(database_now()) == 1
        assert deliver(claim(memory, "poll", 10), memory, NEVER) == 1

    frozen_behind_the_look(memory, another)
    before = metrics.FENCE_LOST._value.get()
    assert deliver(found, memory, NEVER) == 0
    assert memory.accepted == [pk]
    assert (message(pk).state, message(pk).times_uncertain, outcomes()) == ("sent", 0, ["sent"])
    assert metrics.FENCE_LOST._value.get() == before + 1
    assert verified()


def test_the_lost_are_left_out_and_hold_up_their_aggregate_alone(install):
    memory = install(Scripted(window=2))
    first, other = promise("order:1"), promise("order:2")
    second = promise("order:1")
    found = claim(memory, "poll", 10)

    def another():
        end_leases(first)
        assert rescue(database_now()) == 1

    frozen_behind_the_look(memory, another)
    assert deliver(found, memory, NEVER) == 1
    assert memory.accepted == [other]
    assert [message(pk).state for pk in (first, other, second)] == ["pending", "sent", "pending"]
    assert [message(pk).attempts for pk in (first, second)] == [0, 0]


def test_a_batch_whose_lease_ends_while_it_is_screened_is_not_sent(install):
    """It opens no attempt that would look once more, and would leave behind newer ones of its aggregates."""
    memory = install(Scripted(acknowledges="batch"))
    pk = promise()
    found = claim(memory, "poll", 10)

    def outlast() -> None:
        found.taken_at -= settings.OUTBOX_LEASE_SECONDS

    frozen_behind_the_look(memory, outlast)
    assert deliver(found, memory, NEVER) == 0
    assert (memory.accepted, message(pk).state, message(pk).attempts) == ([], "pending", 0)


def test_what_is_frozen_behind_its_attempt_is_marked(install):
    """The call may have been made: whoever comes next cannot know, and says so."""
    memory = install(Scripted())
    pk = promise()
    found = claim(memory, "poll", 10)

    def frozen(messages):
        memory.before = lambda messages: None
        end_leases(pk)
        assert rescue(database_now()) == 1
        OutboxMessage.objects.update(state="pending", available_at=database_now())
        assert deliver(claim(memory, "poll", 10), memory, NEVER) == 1

    memory.before = frozen
    deliver(found, memory, NEVER)
    assert memory.repeats == {pk: 2}
    assert (message(pk).state, message(pk).times_uncertain, outcomes()) == ("sent", 1, ["lost", "sent"])
    assert verified()


@contextmanager
def attempts_locked(entered: threading.Event) -> Iterator[Callable[[], bool]]:
    """Nobody writes attempts, as while an index of theirs is made. Yields whether somebody waits for it."""
    with closing(connection.copy()) as other, other.cursor() as cursor:
        for statement in LOCK[connection.vendor]:
            cursor.execute(statement)
        yield lambda: entered.is_set() and (connection.vendor == "sqlite" or somebody_waits())
        cursor.execute(UNLOCK.get(connection.vendor, "COMMIT"))


def somebody_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(WAITING[connection.vendor])
        return bool(cursor.fetchone()[0])


@pytest.mark.parametrize("rescued", [False, True])
def test_a_lock_that_outlasts_the_lease_is_no_reason_to_send(install, rescued):
    if rescued and connection.vendor == "sqlite":
        pytest.skip("whoever has a lock has them all")
    memory = install(Scripted())
    pk = promise()
    found = claim(memory, "poll", 10)
    end_leases(pk)  # as it will be; the worker looks at its own clock
    entered = threading.Event()

    def outlast() -> None:
        found.taken_at -= settings.OUTBOX_LEASE_SECONDS
        entered.set()

    def work() -> None:
        deliver(found, memory, NEVER)
        connections.close_all()

    frozen_behind_the_look(memory, outlast)
    worker = threading.Thread(target=work)
    with attempts_locked(entered) as somebody_waits_for_it:
        worker.start()
        wait_for(somebody_waits_for_it, PATIENCE, "the worker to wait for the lock")
        if rescued:
            assert rescue(database_now()) == 1
    worker.join(PATIENCE)
    assert not worker.is_alive()
    assert memory.accepted == []
    assert (message(pk).state, message(pk).attempts, outcomes()) == ("pending", 0, [] if rescued else ["released"])
    assert deliver(claim(memory, "poll", 10), memory, NEVER) == 1
    assert (memory.accepted, verified()) == ([pk], True)


# -- A worker that lives never waits for its own lease -------------------------------------------------------
both = pytest.mark.parametrize("committed", [True, False])


@both
def test_a_session_that_ends_at_the_claims_commit_strands_nothing(install, committed):
    memory = install(Scripted())
    pk = promise()
    with lost_answer(committed=committed), pytest.raises(OperationalError):
        claim(memory, "poll", 10)
    found: list[Claim] = []
    wait_for(lambda: found.append(claim(memory, "poll", 10)) or found[-1].messages, PATIENCE, "the message")
    assert deliver(found[-1], memory, NEVER) == 1
    assert (memory.accepted, message(pk).attempts, verified()) == ([pk], 1, True)


@pytest.mark.parametrize("meanwhile", ["another has claimed it", "it was proven"])
def test_what_a_claim_without_an_answer_does_not_hold_is_not_given_back(install, meanwhile):
    memory = install(Scripted())
    pk = promise()
    with lost_answer(committed=meanwhile == "it was proven"), pytest.raises(OperationalError):
        claim(memory, "poll", 10)
    unheard.claims, lost = [], unheard.claims  # as of another process
    if meanwhile == "it was proven":
        assert confirm({pk: "esp-7"}, database_now()) == 1
    else:
        assert len(claim(memory, "poll", 10).messages) == 1
    then = message(pk)
    unheard.claims = lost
    assert claim(memory, "poll", 10).messages == []
    now = message(pk)
    assert (now.state, now.lease_token, now.attempts) == (then.state, then.lease_token, 1)


@both
@pytest.mark.parametrize("number", [1, 2])
def test_a_session_that_ends_at_the_attempts_is_no_attempt(install, committed, number):
    """One is opened by a statement alone, several in a transaction."""
    memory = install(Scripted(window=number))
    ids = [promise(f"order:{turn}") for turn in range(number)]
    found = claim(memory, "poll", 10)
    cut = (
        lost_statement(DeliveryAttempt._meta.db_table, done=committed)
        if number == 1
        else lost_answer(committed=committed)
    )
    with cut:
        assert deliver(found, memory, NEVER) == number
    assert (sorted(memory.accepted), outcomes(), verified()) == (ids, ["sent"] * number, True)
    assert {message(pk).times_uncertain for pk in ids} == {0}


@both
def test_a_session_that_ends_at_the_settlement_loses_no_outcome(install, committed):
    memory = install(Scripted())
    pk = promise()
    memory.answers = [PERMANENT]
    found = claim(memory, "poll", 10)
    cut = lost_answer(committed=committed)
    memory.before = lambda messages: cut.__enter__()
    deliver(found, memory, NEVER)
    cut.__exit__(None, None, None)
    assert (message(pk).state, outcomes(), verified()) == ("dead_lettered", ["permanent"], True)


@both
def test_what_is_given_back_while_the_session_ends_is_pending_and_not_lost(install, committed):
    memory = install(Scripted())
    pk = promise()
    found = claim(memory, "poll", 10)
    before, stop = metrics.FENCE_LOST._value.get(), threading.Event()
    stop.set()
    with lost_answer(committed=committed):
        deliver(found, memory, stop)
    assert (message(pk).state, message(pk).attempts) == ("pending", 0)
    assert metrics.FENCE_LOST._value.get() == before
