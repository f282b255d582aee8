"""One message, every answer: what becomes of it, of its attempt, and of those behind it."""

import threading
import time
from datetime import timedelta

import pytest
from django.db import connection

from config.admin.levers import Operator
from config.database.clock import database_now
from outbox.audit_log.models import OperatorAction
from outbox.bookkeeping import counters
from outbox.channels import permits
from outbox.delivery.overdue import expire_due
from outbox.home import OutboxNumbers, home_row
from outbox.letters.models import DeadLetter
from outbox.models import ChannelState, DeliveryAttempt, OutboxMessage
from tests.outbox.scripted import (
    AMBIGUOUS,
    AUTH,
    PERMANENT,
    SENT,
    THROTTLED,
    TRANSIENT,
    UNREACHABLE,
    Outcome,
    Scripted,
    message,
    promise,
    states,
)

pytestmark = pytest.mark.django_db


def test_what_is_published_is_sent_once(memory, go):
    pk = promise()
    assert go(memory) == 1
    assert go(memory) == 0
    row = message(pk)
    assert (row.state, row.attempts, row.receipt) == ("sent", 1, "r-1")
    assert row.sent_at >= row.created_at
    attempt = DeliveryAttempt.objects.get()
    assert (attempt.message_id, attempt.number, attempt.outcome, attempt.path) == (pk, 1, "sent", "poll")
    assert attempt.finished_at
    assert memory.settlements == [(pk, "sent")]


FATES = [
    # outcome, state, attempts, letters, outcome of the attempt
    (PERMANENT, "dead_lettered", 1, 1),
    (TRANSIENT, "pending", 1, 0),
    (UNREACHABLE, "pending", 0, 0),
    (THROTTLED, "pending", 0, 0),
    (AUTH, "pending", 0, 0),
    (AMBIGUOUS, "uncertain", 1, 0),
]


@pytest.mark.parametrize("acknowledges", ["each", "batch"])
@pytest.mark.parametrize(("answer", "state", "attempts", "letters"), FATES, ids=[row[0].kind for row in FATES])
def test_each_answer_has_its_next_state(install, go, acknowledges, answer, state, attempts, letters):
    memory = install(Scripted(acknowledges=acknowledges))
    pk = promise()
    memory.answers = [answer]
    assert go(memory) == 0
    row = message(pk)
    assert (row.state, row.attempts, row.error_class, row.error) == (state, attempts, answer.kind, answer.error)
    assert row.lease_until is None
    attempt = DeliveryAttempt.objects.get()
    assert (attempt.outcome, attempt.error, attempt.number) == (answer.kind, answer.error, 1)
    assert attempt.finished_at
    assert DeadLetter.objects.count() == letters
    assert memory.settlements == [(pk, answer.kind)]


def test_a_letter_holds_all_that_is_needed(memory, go):
    pk = promise("order:9", payload={"to": "a@b"}, correlation_id="c-9")
    memory.answers = [PERMANENT]
    go(memory)
    letter = DeadLetter.objects.get()
    assert (letter.source, letter.step, letter.reason) == ("outbox", "deliver", "refused")
    assert (letter.topic_id, letter.business_key, letter.correlation_id) == (str(pk), "order:9", "c-9")
    assert bytes(letter.payload) == b'{"to":"a@b"}'
    assert letter.error == "no such mailbox"


def test_transient_failures_end_after_the_last_retry(memory, go, later):
    pk = promise()
    memory.always = TRANSIENT
    for attempt in range(1, 5):
        go(memory)
        assert message(pk).attempts == attempt
        later(20_000, state="pending") if attempt < 4 else None
        OutboxMessage.objects.filter(state="pending").update(expires_at=database_now() + timedelta(days=1))
    assert message(pk).state == "dead_lettered"
    assert DeadLetter.objects.get().reason == "max_retries"
    assert len(memory.calls) == 4


def test_throttled_channels_wait_as_told(memory, go):
    pks = [promise(f"order:{n}") for n in range(3)]
    memory.answers = [SENT, THROTTLED]
    assert go(memory) == 1
    assert len(memory.calls) == 2
    assert [message(pk).attempts for pk in pks] == [1, 0, 0]
    assert go(memory) == 0
    assert len(memory.calls) == 2
    ChannelState.objects.update(wait_until=database_now())
    assert go(memory) == 2


@pytest.mark.parametrize(("told", "waits"), [(0.0, 1), (30.0, 30), (2.3e9, 3600), (float("inf"), 3600)])
def test_a_wait_of_years_is_cut_to_an_hour(memory, go, told, waits):
    promise()
    memory.answers = [Outcome("throttled", "429", retry_after=told)]
    before = database_now()
    go(memory)
    until = ChannelState.objects.get().wait_until
    assert timedelta(seconds=waits) <= until - before < timedelta(seconds=waits + 60)


def test_refused_credentials_pause_the_channel_and_cost_nothing(memory, go):
    pks = [promise(f"order:{n}") for n in range(3)]
    memory.answers = [AUTH]
    assert go(memory) == go(memory) == 0
    assert len(memory.calls) == 1
    assert [(message(pk).state, message(pk).attempts) for pk in pks] == [("pending", 0)] * 3
    state = ChannelState.objects.get(name="memory")
    assert state.paused
    assert "bad key" in state.pause_reason
    assert OperatorAction.objects.get().verb == "pause"
    assert permits.resume("memory", Operator("me"), "new key")
    assert go(memory) == 3


@pytest.mark.parametrize("acknowledges", ["each", "batch"])
@pytest.mark.parametrize("fault", [RuntimeError("boom"), None])
def test_a_handler_that_breaks_loses_nothing(install, go, acknowledges, fault):
    memory = install(Scripted(acknowledges=acknowledges))
    promise()

    def broken(messages):
        if fault:
            raise fault
        return []

    memory.send = broken
    assert go(memory) == 0
    assert states() == {"uncertain": 1} if acknowledges == "each" else {"pending": 1}


def test_what_breaks_around_the_call_gives_the_rest_back(memory, go):
    pks = [promise(f"order:{n}") for n in range(3)]

    def broken(messages):
        raise RuntimeError("no database here")

    memory.screen = broken
    with pytest.raises(RuntimeError):
        go(memory)
    assert [(message(pk).state, message(pk).attempts) for pk in pks] == [("pending", 0)] * 3


def test_a_window_sends_side_by_side_and_settles_each(install, go):
    memory = install(Scripted(window=4))
    together = threading.Barrier(4, timeout=20)
    memory.before = lambda messages: together.wait()
    pks = [promise(f"order:{n}") for n in range(8)]
    memory.by_aggregate["order:3"] = [PERMANENT]
    assert go(memory) == 7
    assert message(pks[3]).state == "dead_lettered"
    assert DeliveryAttempt.objects.filter(finished_at__isnull=False).count() == 8


def test_an_attempt_is_in_the_database_before_the_call(memory, go):
    promise()
    seen = []
    memory.before = lambda messages: seen.append(DeliveryAttempt.objects.open().count())
    go(memory)
    assert seen == [1]


@pytest.mark.parametrize("why", ["lease", "stop"])
def test_a_worker_finishes_what_is_in_hand_and_gives_back_the_rest(memory, go, settings, why):
    """Told to stop, or because the lease is nearly over."""
    pks = [promise(f"order:{n}") for n in range(3)]
    stop = threading.Event()
    if why == "stop":
        memory.before = lambda messages: stop.set()
    else:
        settings.OUTBOX_LEASE_SECONDS, memory.timeout = 2, 1.5
        memory.before = lambda messages: time.sleep(0.4)
    assert go(memory, stop=stop) == 1
    assert [(message(pk).state, message(pk).attempts) for pk in pks] == [("sent", 1), ("pending", 0), ("pending", 0)]


def test_what_nobody_wants_any_more_is_a_letter_and_is_not_sent(memory, go):
    pk = promise()
    successor = promise()
    OutboxMessage.objects.filter(pk=pk).update(expires_at=database_now())
    assert go(memory) == 1
    assert (message(pk).state, message(successor).state) == ("expired", "sent")
    letter = DeadLetter.objects.get()
    assert (letter.step, letter.reason) == ("expire", "expired")


def test_only_what_is_too_old_expires_also_in_a_paused_channel(memory, go):
    late, young = promise("order:1"), promise("order:2")
    permits.pause("memory", Operator("me"), "maintenance")
    assert expire_due("memory") == 0
    OutboxMessage.objects.filter(pk=late).update(expires_at=database_now())
    assert (go(memory), message(late).state) == (0, "pending")
    assert expire_due("memory") == 1
    assert (message(late).state, message(young).state) == ("expired", "pending")


def test_a_retry_is_never_planned_beyond_the_expiry(memory, go):
    pk = promise()
    OutboxMessage.objects.update(expires_at=database_now() + timedelta(seconds=3))
    memory.answers = [Outcome("transient", "greylisted", least_wait=60)]
    go(memory)
    row = message(pk)
    assert row.available_at == row.expires_at


def test_everything_is_counted_and_the_letters_of_the_last_hour_stand_on_home(memory, go):
    for n, answer in enumerate([SENT, SENT, PERMANENT, AMBIGUOUS, PERMANENT]):
        promise(f"order:{n}")
        memory.answers.append(answer)
    go(memory)
    assert counters.totals("outbox") == {"sent": 2, "permanent": 2, "ambiguous": 1, "buried": 2}
    assert home_row(OutboxNumbers(database_now())).letters_last_hour == 2


@pytest.mark.parametrize(("acknowledges", "lazy"), [("each", 0), ("batch", 1)])
def test_only_the_claim_of_what_may_go_twice_is_lost_by_a_crash_of_the_server(install, go, acknowledges, lazy):
    if connection.vendor != "postgresql":
        pytest.skip("elsewhere no transaction decides how safe its commit is")
    memory = install(Scripted(acknowledges=acknowledges))
    permits.ensure([memory.name])
    promise()
    said: list[str] = []
    with connection.execute_wrapper(lambda run, sql, *rest: said.append(sql) or run(sql, *rest)):
        assert go(memory) == 1
    assert [sql for sql in said if "synchronous_commit" in sql] == ["SET LOCAL synchronous_commit TO off"] * lazy
    settling = next(index for index, sql in enumerate(said) if "sent_at" in sql)
    assert not any("synchronous_commit" in sql for sql in said[settling - 3 :])
