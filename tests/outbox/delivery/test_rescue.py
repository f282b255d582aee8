"""Workers that did not come back, and what nobody can tell."""

import threading
from datetime import UTC, datetime, time, timedelta

import pytest

from config.admin.levers import Operator
from config.database.clock import database_now
from config.partitions import ensure_partitions, rotate, rotation
from config.partitions.rotation import driver_for
from outbox.audit_log.models import OperatorAction
from outbox.bookkeeping.leases import recover
from outbox.delivery import levers, overdue
from outbox.delivery.claim import claim
from outbox.delivery.deliver import deliver
from outbox.delivery.overdue import rescue
from outbox.delivery.settle import open_attempts, release
from outbox.letters.models import DeadLetter
from outbox.messages import publish
from outbox.models import DeliveryAttempt, OutboxMessage
from outbox.partitioned import ATTEMPTS
from outbox.workers.start import recover_claims
from tests.outbox.aged import aged
from tests.outbox.scripted import AMBIGUOUS, SENT, TRANSIENT, Scripted, message, promise, taken_back

pytestmark = pytest.mark.django_db
ME = Operator("me")


class Killed(BaseException):
    """As SIGKILL: nothing that the worker wanted to do afterwards happens."""


def die(memory, monkeypatch, during: str = "call") -> None:
    """Claim what is due and die: before any call, in the middle of one, or before its outcome is written."""
    found = claim(memory, "poll", 100)

    def killed(*args):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("outbox.delivery.deliver.release", lambda *args: 0)
        if during != "claim":
            patch.setattr(f"outbox.delivery.deliver.{during}", killed)
            with pytest.raises(Killed):
                deliver(found, memory, threading.Event())


def over() -> None:
    """Time passes, and every lease is over."""
    OutboxMessage.objects.filter(state="processing").update(lease_until=database_now() - timedelta(seconds=1))


def found_dead(memory, monkeypatch, during: str = "call") -> None:
    """A worker dies; when its lease is over, somebody looks."""
    die(memory, monkeypatch, during)
    over()
    rescue(database_now())


def test_a_message_that_was_never_tried_goes_back_with_its_attempt(memory, monkeypatch):
    pk = promise()
    die(memory, monkeypatch, "claim")
    assert message(pk).attempts == 1
    over()
    assert recover_claims()["outbox_outboxmessage"] == 1
    row = message(pk)
    assert (row.state, row.attempts, row.times_uncertain, row.lease_token) == ("pending", 0, 0, None)


def test_messages_are_decided_about_never_just_released(memory, monkeypatch):
    """Released, a message that may have been sent would simply be sent again."""
    pk = promise()
    die(memory, monkeypatch, "call")
    over()
    with pytest.raises(TypeError, match="decided about"):
        recover(OutboxMessage, database_now())
    assert message(pk).state == "processing"


@pytest.mark.parametrize("during", ["call", "settle"])
def test_a_message_in_the_middle_of_a_call_is_uncertain(install, monkeypatch, during):
    memory = install(Scripted())
    pk = promise()
    found_dead(memory, monkeypatch, during)
    row = message(pk)
    assert (row.state, row.attempts, row.times_uncertain, row.error_class) == ("uncertain", 1, 1, "lost")
    assert row.available_at > database_now() + timedelta(seconds=100)
    attempt = DeliveryAttempt.objects.get()
    assert (attempt.outcome, bool(attempt.finished_at)) == ("lost", True)


@pytest.mark.parametrize("days", [0, 3, 40])
def test_however_long_nobody_looked_a_begun_call_is_uncertain(memory, days):
    """Looked for in the last two days only, it was sent again and unmarked, and its attempt stayed open."""
    begun, untried = promise("order:begun"), promise("order:untried")
    found = claim(memory, "poll", 100)
    tried = [one for one in found.messages if one.id == begun]
    open_attempts(found, tried, database_now(), threading.Event())
    begun, untried = aged(begun, days), aged(untried, days)
    over()
    rescue(database_now())
    assert (message(begun).state, message(begun).times_uncertain) == ("uncertain", 1)
    assert (message(untried).state, message(untried).times_uncertain) == ("pending", 0)
    assert DeliveryAttempt.objects.get().outcome == "lost"


@pytest.fixture
def outlived(monkeypatch, settings, transactional_db):
    """Rotation believes that the attempts of today are older than their retention."""
    settings.ATTEMPT_RETENTION_DAYS = 1
    today = database_now().date()
    day = next(partition for partition in driver_for(ATTEMPTS, "default").existing() if partition.holds(today))
    then = datetime.combine(day.upper + timedelta(days=1), time(1), UTC)
    monkeypatch.setattr(rotation, "database_now", lambda using: then)
    yield
    monkeypatch.undo()
    DeliveryAttempt.objects.all().delete()
    ensure_partitions(ATTEMPTS)


@pytest.mark.parametrize("state", ["processing", "pending", "uncertain", "sent"])
def test_attempts_of_what_is_unfinished_outlive_their_retention(memory, outlived, state):
    promise()
    found = claim(memory, "poll", 100)
    open_attempts(found, found.messages, database_now(), threading.Event())
    OutboxMessage.objects.update(state=state)
    assert rotate(specs=[ATTEMPTS])[0].failures == []
    assert DeliveryAttempt.objects.count() == (state != "sent")
    OutboxMessage.objects.update(state="sent")
    rotate(specs=[ATTEMPTS])
    assert not DeliveryAttempt.objects.exists()


def test_the_letter_of_one_that_may_have_been_sent_does_not_say_that_it_was_not(memory, go, later):
    memory.answers = [AMBIGUOUS]
    promise()
    go(memory)
    later(10**5)
    assert overdue.decide_uncertain(memory) == 1
    later(10**8)
    assert overdue.expire_due("memory") == 1
    assert DeadLetter.objects.get().error == OutboxMessage.objects.get().error == overdue.MAYBE_SENT


@pytest.mark.parametrize(("harmless", "accepted"), [({"honours_keys": True}, 1), ({"acknowledges": "batch"}, 2)])
def test_what_a_repeat_does_not_harm_is_simply_tried_again(install, monkeypatch, go, harmless, accepted):
    memory = install(Scripted(**harmless))
    pk = promise()
    found_dead(memory, monkeypatch, "settle")
    assert (message(pk).state, message(pk).attempts) == ("pending", 1)
    assert go(memory) == 1
    assert memory.accepted == [pk] * accepted


def test_a_call_whose_outcome_cannot_be_written_is_not_given_back(memory, monkeypatch):
    """Given back it would go out again, and nobody would know."""
    pk = promise()

    def broken(*args):
        raise RuntimeError("no database")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr("outbox.delivery.deliver.settle", broken)
        deliver(claim(memory, "poll", 10), memory, threading.Event())
    assert message(pk).state == "processing"
    over()
    rescue(database_now())
    assert message(pk).state == "uncertain"


def test_a_zombie_does_not_settle_for_its_successor(install):
    """It was frozen in its call; the row is being sent again, under another token: only that one may say what became of it."""
    memory = install(Scripted(honours_keys=True))
    pk = promise()
    successors = []

    def passed_by(*_messages):
        memory.before = lambda messages: None
        over()
        rescue(database_now())
        successors.append(claim(memory, "poll", 10))

    for answer in (SENT, TRANSIENT, None):
        zombie = claim(memory, "poll", 10)
        if answer:
            memory.answers, memory.before = [answer], passed_by
            deliver(zombie, memory, threading.Event())
        else:
            passed_by()
            release(zombie, [(m, m.available_at) for m in zombie.messages], "late", threading.Event())
        row = message(pk)
        assert (row.state, row.lease_token) == ("processing", successors[-1].token)
        over()
        rescue(database_now())


def test_a_lease_that_still_runs_is_left_alone(memory, monkeypatch):
    pk = promise()
    die(memory, monkeypatch)
    assert rescue(database_now()) == 0
    assert message(pk).state == "processing"


@pytest.mark.parametrize(("acknowledges", "honours"), [("batch", False), ("each", True)])
def test_a_message_that_kills_its_workers_is_a_letter_in_the_end(install, monkeypatch, acknowledges, honours):
    memory = install(Scripted(acknowledges=acknowledges, honours_keys=honours))
    pk = promise()
    for _ in range(20):
        found_dead(memory, monkeypatch)
        if message(pk).state != "pending":
            break
    assert (message(pk).state, message(pk).attempts) == ("dead_lettered", 1 + 3 + 5)
    assert DeadLetter.objects.get().reason == "crash_loop"


def test_crashes_of_an_uncertain_channel_end_too(install, monkeypatch, later):
    memory = install(Scripted())
    pk = promise()
    for _ in range(20):
        found_dead(memory, monkeypatch)
        OutboxMessage.objects.update(expires_at=database_now() + timedelta(days=1))
        later(121)
        overdue.decide_uncertain(memory)
        if message(pk).state != "pending":
            break
    assert message(pk).attempts == 4
    assert (message(pk).state, message(pk).times_uncertain) == ("dead_lettered", 4)
    assert DeadLetter.objects.get().reason == "uncertain"


def test_nobody_decides_before_the_time_is_over(memory, go, later):
    pk = promise()
    memory.answers = [AMBIGUOUS]
    go(memory)
    assert overdue.decide_uncertain(memory) == 0
    later(121)
    assert overdue.decide_uncertain(memory) == 1
    row = message(pk)
    assert (row.state, row.times_uncertain) == ("pending", 1)
    assert go(memory) == 1
    assert memory.repeats == {pk: 2}


def test_proof_that_comes_late_settles_it(memory, go):
    pk = promise()
    memory.answers = [AMBIGUOUS]
    go(memory)
    assert publish.confirm({pk: "esp-7"}, database_now())
    row = message(pk)
    assert (row.state, row.receipt, row.times_uncertain) == ("sent", "esp-7", 1)
    assert not publish.confirm({pk: "esp-8"}, database_now())
    assert message(pk).receipt == "esp-7"


def test_proof_cancels_a_retry_that_waits(memory, go, later):
    pk = promise()
    memory.answers = [AMBIGUOUS]
    go(memory)
    later(121)
    overdue.decide_uncertain(memory)
    assert publish.confirm({pk: "esp-7"}, database_now())
    assert go(memory) == 0
    assert not memory.repeats


def test_nothing_proves_a_message_that_was_never_tried(memory):
    pk = promise()
    assert not publish.confirm({pk: "esp-7"}, database_now())
    assert message(pk).state == "pending"


def test_proof_in_the_middle_of_a_call_is_not_a_lost_fence(memory, go):
    pk = promise()
    memory.before = lambda messages: publish.confirm({pk: "esp-7"}, database_now())
    go(memory)
    assert (message(pk).state, message(pk).receipt) == ("sent", "esp-7")
    assert DeliveryAttempt.objects.get().outcome == "sent"


def uncertain(memory, go, number: int = 2) -> list:
    pks = [promise(f"order:{n}") for n in range(number)]
    memory.answers = [AMBIGUOUS] * number
    go(memory)
    return pks


def test_a_person_says_that_it_was_sent(memory, go):
    pks = uncertain(memory, go)
    assert levers.it_was_sent(pks[:1], ME, "seen in the provider's log") == 1
    assert [message(pk).state for pk in pks] == ["sent", "uncertain"]
    assert levers.it_was_sent(pks[:1], ME, "again") == 0
    assert OperatorAction.objects.get().reason == "seen in the provider's log"


def test_a_person_sends_it_again(memory, go):
    pks = uncertain(memory, go)
    assert levers.send_again(pks, ME, "the customer has nothing") == 2
    assert go(memory) == 2
    assert set(memory.repeats) == set(pks)
    assert [message(pk).times_uncertain for pk in pks] == [1, 1]


def test_however_many_tries_were_made_before_what_a_person_sends_again_is_no_crash_loop(memory, go, monkeypatch):
    (pk,) = uncertain(memory, go, 1)
    OutboxMessage.objects.update(attempts=20)
    assert levers.send_again([pk], ME, "the customer has nothing") == 1
    found_dead(memory, monkeypatch)
    assert (message(pk).state, message(pk).attempts) == ("uncertain", 4)


def test_a_person_gives_it_up(memory, go):
    pks = uncertain(memory, go)
    assert levers.give_up(pks, ME, "too late") == 2
    assert [message(pk).state for pk in pks] == ["dead_lettered"] * 2
    assert DeadLetter.objects.count() == 2


def test_a_pending_message_can_be_cancelled_and_a_sent_one_cannot(memory, go):
    first, second = promise("order:1"), promise("order:2")
    go(memory, most=1)
    assert levers.cancel([first, second], ME, "wrong price") == 1
    assert (message(first).state, message(second).state) == ("sent", "cancelled")
    assert go(memory) == 0


def test_a_retry_need_not_be_waited_for(memory, go):
    pk = promise()
    OutboxMessage.objects.update(available_at=database_now() + timedelta(hours=1))
    assert go(memory) == 0
    assert levers.retry_now([pk], ME, "fixed") == 1
    assert go(memory) == 1


@pytest.mark.parametrize("ended", ["dead_lettered", "expired"])
def test_a_message_that_ended_can_come_back(memory, go, ended):
    pk = promise()
    OutboxMessage.objects.update(state=ended, attempts=4, expires_at=database_now() - timedelta(days=2))
    now = database_now()
    assert taken_back(pk, now) == "waiting"
    assert taken_back(pk, now) == "refused"
    row = message(pk)
    assert (row.state, row.attempts, row.times_revived) == ("pending", 0, 1)
    assert row.expires_at > now
    assert go(memory) == 1


def test_a_sent_message_does_not_come_back(memory, go):
    pk = promise()
    go(memory)
    assert taken_back(pk, database_now()) == "resolved"
