"""Messages of one aggregate leave in order, and nobody waits for ever."""

import threading
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from config.database.clock import database_now
from outbox.channels.handlers import Message
from outbox.delivery import overdue
from outbox.delivery.candidates import Obstacle, choose, in_waves
from outbox.delivery.claim import claim
from outbox.delivery.deliver import deliver
from outbox.delivery.overdue import rescue
from outbox.models import OutboxMessage
from tests.outbox.scripted import AMBIGUOUS, PERMANENT, TRANSIENT, UNREACHABLE, Scripted, message, promise

NOW = datetime(2026, 1, 1, tzinfo=UTC)
db = pytest.mark.django_db


def row(number: int, aggregate: str = "a", revived: int = 0) -> Message:
    return Message(uuid.UUID(int=number), "e", aggregate, "", "", "", 1, NOW, NOW, NOW, 0, revived)


def obstacle(number: int, aggregate: str = "a", state: str = "pending", at: datetime = NOW) -> Obstacle:
    return Obstacle(aggregate, uuid.UUID(int=number), state, at)


LATER, SOON = NOW + timedelta(minutes=5), NOW + timedelta(seconds=0.5)


@pytest.mark.parametrize(
    ("candidates", "unfinished", "chosen", "put_off"),
    [
        # Behind a foreign one it is put off, until that is due; before it, it may go.
        ([row(2), row(5, "b")], [obstacle(1, at=LATER)], [row(5, "b")], [(row(2), LATER)]),
        ([row(1), row(3)], [obstacle(2)], [row(1)], [(row(3), SOON)]),
        # Behind one that is being sent it is soon looked at again.
        ([row(2)], [obstacle(1, state="processing", at=LATER)], [], [(row(2), SOON)]),
        # An aggregate that is claimed whole may go, and one that came back waits for nobody.
        ([row(2), row(1)], [obstacle(1), obstacle(2)], [row(2), row(1)], []),
        ([row(2, revived=1)], [obstacle(1)], [row(2, revived=1)], []),
    ],
)
def test_who_waits_for_whom(candidates, unfinished, chosen, put_off):
    assert choose(candidates, unfinished, NOW) == (chosen, put_off)


def test_waves_hold_one_of_each_aggregate_the_older_first():
    waves = in_waves([row(3), row(1), row(7, "b"), row(2)])
    assert waves == [[row(1), row(7, "b")], [row(2)], [row(3)]]
    assert in_waves([]) == []


@db
@pytest.mark.parametrize("acknowledges", ["each", "batch"])
def test_a_chain_is_sent_in_one_round_in_order(install, go, acknowledges):
    memory = install(Scripted(acknowledges=acknowledges))
    pks = [promise("order:1") for _ in range(5)]
    assert go(memory) == 5
    assert memory.accepted == pks
    assert all(len({m.aggregate for m in sent}) == len(sent) for sent in memory.calls)


@db
@pytest.mark.parametrize("answer", [TRANSIENT, UNREACHABLE, AMBIGUOUS], ids=lambda answer: answer.kind)
def test_behind_one_that_did_not_go_nobody_goes(memory, go, answer):
    first, second, third = (promise("order:1") for _ in range(3))
    memory.answers = [answer]
    assert go(memory) == 0
    assert len(memory.calls) == 1
    for pk in (second, third):
        waiting = message(pk)
        assert (waiting.state, waiting.attempts) == ("pending", 0)
        assert waiting.available_at >= message(first).available_at
    now = database_now()
    OutboxMessage.objects.filter(pk=first).update(available_at=now + timedelta(minutes=1))
    OutboxMessage.objects.exclude(pk=first).update(available_at=now)
    assert go(memory) == 0
    assert len(memory.calls) == 1
    assert message(second).available_at == message(first).available_at


@db
def test_behind_one_that_another_worker_took_over_nobody_goes(memory):
    """Its lease ran out in the middle of the call: whoever recovers it decides about those behind it, too."""
    first, second = promise("order:1"), promise("order:1")

    def taken_over(messages):
        OutboxMessage.objects.filter(pk=first).update(lease_until=database_now())
        assert rescue(database_now()) == 1

    memory.before, memory.answers = taken_over, [TRANSIENT]
    deliver(claim(memory, "poll", 10), memory, threading.Event())
    assert len(memory.calls) == 1
    assert (message(first).state, message(second).state, message(second).attempts) == ("uncertain", "pending", 0)


@db
def test_one_that_came_back_holds_nobody_up(memory, go):
    """Those behind it did not wait for it before, and may be gone."""
    first, second = promise("order:1"), promise("order:1")
    later = database_now() + timedelta(minutes=1)
    OutboxMessage.objects.filter(pk=first).update(times_revived=1, available_at=later)
    assert go(memory) == 1
    assert message(second).state == "sent"


@db
def test_a_dead_head_lets_its_successors_pass(memory, go):
    first, second = promise("order:1"), promise("order:1")
    memory.answers = [PERMANENT]
    assert go(memory) == 1
    assert (message(first).state, message(second).state) == ("dead_lettered", "sent")


@db
def test_an_uncertain_head_that_is_held_lets_them_pass_after_its_time(install, go, later):
    memory = install(Scripted(uncertain="hold"))
    first, second = promise("order:1"), promise("order:1")
    memory.answers = [AMBIGUOUS]
    go(memory)
    later(121)
    assert overdue.decide_uncertain(memory) == 0
    assert go(memory) == 1
    assert (message(first).state, message(second).state) == ("uncertain", "sent")


@db
def test_a_retry_goes_before_its_successors_even_where_they_were_due_earlier(memory, go):
    first, second = promise("order:1"), promise("order:1")
    now = database_now()
    OutboxMessage.objects.filter(pk=first).update(available_at=now, times_uncertain=1)
    OutboxMessage.objects.filter(pk=second).update(available_at=now - timedelta(minutes=1))
    assert go(memory) == 2
    assert memory.accepted == [first, second]


@db
def test_what_is_blocked_does_not_starve_the_others(memory, go):
    head = promise("order:stuck")
    for _ in range(30):
        promise("order:stuck")
    OutboxMessage.objects.filter(pk=head).update(available_at=database_now() + timedelta(minutes=5))
    free = promise("order:free")
    rounds = [go(memory, most=10) for _ in range(5)]
    assert sum(rounds) == 1
    assert memory.accepted == [free]
    assert claim(memory, "poll", 10).looked_at == 0


@db
def test_two_channels_do_not_wait_for_each_other(install, go):
    mail, log = Scripted(name="mail"), Scripted(name="log")
    install(mail, log)
    promise("order:1", channel="mail")
    promise("order:1", channel="log")
    mail.answers = [TRANSIENT]
    assert go(mail) == 0
    assert go(log) == 1
