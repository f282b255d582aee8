"""Two at one row, on connections of their own: each edge is taken once, and a late worker changes nothing."""

import threading
from collections import Counter
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection, transaction

from config.admin.levers import Operator
from config.database.clock import database_now
from config.letters import Refusal
from config.telemetry import metrics
from outbox.channels import permits
from outbox.delivery import levers, overdue
from outbox.delivery.claim import claim
from outbox.delivery.deliver import deliver
from outbox.delivery.overdue import rescue
from outbox.letters.models import DeadLetter
from outbox.messages import publish
from outbox.messages.models import MessageQuerySet
from outbox.models import ChannelState, DeliveryAttempt, OperatorAction, OutboxMessage, Resend
from tests.crash.wire import wait_for
from tests.outbox.race import PATIENCE, race
from tests.outbox.scripted import (
    AMBIGUOUS,
    PERMANENT,
    TRANSIENT,
    UNREACHABLE,
    Scripted,
    message,
    promise,
    states,
    taken_back,
)

pytestmark = pytest.mark.django_db(transaction=True)
ME = Operator("race")
NEVER = threading.Event()


def fill(number: int, aggregates: int = 0) -> list:
    with transaction.atomic():
        return [promise(f"order:{n % (aggregates or number)}") for n in range(number)]


def drain(handler, path="poll", ids=None):
    """Claim and deliver until a look finds nothing."""
    moved = 0
    while True:
        found = claim(handler, path, 20, ids=ids)
        deliver(found, handler, NEVER)
        if not found.looked_at:
            return moved
        moved += len(found.messages)


def test_claims_never_overlap_and_never_overshoot(install):
    memory = install(Scripted())
    fill(200)
    found = race(*[lambda: claim(memory, "poll", 30) for _ in range(4)])
    taken = [m.id for one in found for m in one.messages]
    assert all(len(one.messages) <= 30 for one in found)
    assert len(taken) == len(set(taken)) == OutboxMessage.objects.filter(state="processing").count()
    assert set(OutboxMessage.objects.filter(state="processing").values_list("attempts", flat=True)) == {1}


def test_both_paths_at_the_same_rows_send_each_once(install):
    memory = install(Scripted(acknowledges="batch"))
    pks = fill(300, aggregates=200)
    parts = [pks[start : start + 50] for start in range(0, 300, 50)]
    race(
        lambda: drain(memory),
        lambda: [drain(memory, "cdc", part) for part in parts],
        lambda: [drain(memory, "cdc", part) for part in reversed(parts)],
        lambda: drain(memory),
    )
    OutboxMessage.objects.filter(state="pending").update(available_at=database_now())
    drain(memory)
    assert states() == {"sent": 300}
    assert not memory.repeats
    assert Counter(memory.accepted).total() == 300
    assert DeliveryAttempt.objects.count() == 300


def test_many_workers_keep_the_order_of_each_aggregate(install):
    memory = install(Scripted())
    pks = fill(60, aggregates=6)

    def work():
        for _ in range(200):
            drain(memory)
            OutboxMessage.objects.filter(state="pending").update(available_at=database_now())
            if not OutboxMessage.objects.unfinished().exists():
                return

    race(work, work, work)
    assert states() == {"sent": 60}
    for aggregate in range(6):
        mine = [pk for n, pk in enumerate(pks) if n % 6 == aggregate]
        assert [pk for pk in memory.accepted if pk in mine] == mine


def test_a_zombie_changes_nothing_and_is_counted(install):
    memory = install(Scripted())
    pk = promise()
    found = claim(memory, "poll", 10)

    def stopped(messages):
        """SIGSTOP in the middle of a call: the lease runs out, recovery and another worker pass by."""
        memory.before = lambda messages: None
        OutboxMessage.objects.update(lease_until=database_now() - timedelta(seconds=1))
        assert rescue(database_now()) == 1
        assert levers.send_again([pk], ME, "for the race")
        memory.answers = [PERMANENT]
        assert claimed_and_delivered(memory) == 0

    memory.before = stopped
    before = metrics.FENCE_LOST._value.get()
    deliver(found, memory, NEVER)
    assert metrics.FENCE_LOST._value.get() == before + 1
    row = message(pk)
    assert (row.state, row.attempts, row.times_uncertain) == ("dead_lettered", 2, 1)
    assert DeadLetter.objects.count() == 1
    assert sorted(DeliveryAttempt.objects.values_list("outcome", flat=True)) == ["lost", "permanent"]


def claimed_and_delivered(handler) -> int:
    return deliver(claim(handler, "poll", 10), handler, NEVER)


def test_a_partly_lost_batch_settles_what_is_still_its_own(install):
    memory = install(Scripted(acknowledges="batch"))
    pks = fill(5)
    found = claim(memory, "poll", 10)
    OutboxMessage.objects.filter(pk=pks[2]).update(lease_until=database_now() - timedelta(seconds=1))
    rescue(database_now())
    deliver(found, memory, NEVER)
    assert [message(pk).state for pk in pks] == ["sent", "sent", "pending", "sent", "sent"]
    assert DeliveryAttempt.objects.count() == 4


def test_recovery_and_the_late_settle_do_not_both_decide(install):
    memory = install(Scripted())
    for answer in (None, TRANSIENT, PERMANENT):
        OutboxMessage.objects.all().delete()
        pk = promise(f"order:{answer}")
        found = claim(memory, "poll", 10)
        OutboxMessage.objects.update(lease_until=database_now() - timedelta(seconds=1))
        memory.answers = [answer] if answer else []
        race(lambda: deliver(found, memory, NEVER), lambda: rescue(database_now()))
        row = message(pk)
        assert row.state in ("sent", "pending", "uncertain", "dead_lettered")
        # Whoever came first has it; nobody holds it any more, and no letter belongs to a living row.
        assert row.lease_until is None
        assert DeadLetter.objects.filter(topic_id=str(pk)).exists() == (row.state == "dead_lettered")


def test_two_recoveries_recover_once(install):
    memory = install(Scripted())
    fill(40)
    claim(memory, "poll", 100)
    OutboxMessage.objects.update(lease_until=database_now() - timedelta(seconds=1))
    assert sum(race(*[lambda: rescue(database_now()) for _ in range(3)])) == 40
    assert set(OutboxMessage.objects.values_list("attempts", flat=True)) == {0}


def uncertain_one(memory):
    pk = promise()
    memory.answers = [AMBIGUOUS]
    claimed_and_delivered(memory)
    OutboxMessage.objects.update(available_at=database_now() - timedelta(seconds=1))
    return pk


def test_proof_and_decision_do_not_both_settle(install):
    memory = install(Scripted())
    pk = uncertain_one(memory)
    confirmed, _ = race(lambda: publish.confirm({pk: "esp"}, database_now()), lambda: overdue.decide_uncertain(memory))
    assert confirmed
    assert message(pk).state == "sent"
    assert drain(memory) == 0


def test_two_proofs_settle_once(install):
    memory = install(Scripted())
    pk = uncertain_one(memory)
    found = race(*[lambda n=n: publish.confirm({pk: f"esp-{n}"}, database_now()) for n in range(3)])
    assert found.count(True) == 1


def test_people_at_one_uncertain_message_pull_one_lever(install):
    memory = install(Scripted())
    pk = uncertain_one(memory)
    pulled = race(
        lambda: levers.it_was_sent([pk], ME, "x"),
        lambda: levers.give_up([pk], ME, "x"),
        lambda: levers.send_again([pk], ME, "x"),
    )
    assert sum(pulled) == 1
    expected = ["sent", "dead_lettered", "pending"][pulled.index(1)]
    assert message(pk).state == expected
    assert DeadLetter.objects.count() == pulled[1]


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="which session waits for a row is asked as PostgreSQL says it"
)
@pytest.mark.parametrize("guard", ["the lock", "the key"])
def test_two_clicks_on_send_again_make_one_message_by_either_guard_alone(install, monkeypatch, guard):
    """The other guard is taken away: every key is another one, or nobody locks and both look before either writes."""
    memory = install(Scripted())
    sent = promise()
    deliver(claim(memory, "poll", 10), memory, NEVER)
    turns, came, promised, families = iter([1, 2]), threading.Event(), levers.publish, levers._families

    def look(ids):
        turn, found = next(turns), families(ids)
        if turn == 2:
            came.set()
        elif guard == "the key":
            assert came.wait(PATIENCE)
        else:
            wait_for(lambda: came.is_set() or somebody_waits_for_a_row(), PATIENCE, "the other one")
        return found

    def publish_anyhow(*about, idempotency_key, **more):
        return promised(*about, idempotency_key=f"{idempotency_key}/{uuid4()}", **more)

    def ask():
        try:
            return levers.resend(sent, ME, "it never came")
        except Refusal as refusal:
            return str(refusal)

    monkeypatch.setattr(levers, "_families", look)
    if guard == "the key":
        monkeypatch.setattr(MessageQuerySet, "select_for_update", lambda rows: rows)
    else:
        monkeypatch.setattr(levers, "publish", publish_anyhow)
    answers = race(ask, ask)
    assert answers.count(levers.UNDER_WAY) == 1
    assert (OutboxMessage.objects.count(), Resend.objects.count(), OperatorAction.objects.count()) == (2, 1, 1)


def somebody_waits_for_a_row():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return cursor.fetchone()[0]


def test_cancelling_and_claiming_do_not_both_win(install):
    memory = install(Scripted())
    for n in range(5):
        pk = promise(f"order:{n}")
        cancelled, found = race(lambda pk=pk: levers.cancel([pk], ME, "x"), lambda: claim(memory, "poll", 10))
        assert cancelled + len(found.messages) == 1
        assert message(pk).state == ("cancelled" if cancelled else "processing")


def test_two_revivals_bring_it_back_once(install):
    memory = install(Scripted())
    pk = promise()
    memory.answers = [PERMANENT]
    claimed_and_delivered(memory)

    def back():
        return taken_back(pk, database_now())

    assert race(back, back, back).count("waiting") == 1
    assert message(pk).times_revived == 1


def test_expiry_by_two_buries_once(install):
    memory = install(Scripted())
    fill(20)
    OutboxMessage.objects.update(expires_at=database_now())
    race(lambda: overdue.expire_due("memory"), lambda: claim(memory, "poll", 50), lambda: overdue.expire_due("memory"))
    overdue.expire_due("memory")
    assert states() == {"expired": 20}
    assert DeadLetter.objects.count() == 20


def test_one_worker_gets_the_probe(install):
    memory = install(Scripted())
    fill(10)
    permits.ensure(["memory"])
    now = database_now()
    ChannelState.objects.update(breaker="open", opened_at=now, probe_at=now)
    found = race(*[lambda: claim(memory, "poll", 10) for _ in range(4)])
    assert sorted(len(one.messages) for one in found) == [0, 0, 0, 1]


def test_outages_of_many_workers_open_it_once(install):
    memory = install(Scripted())
    memory.always = UNREACHABLE
    fill(10)
    permits.ensure(["memory"])

    def work():
        for _ in range(5):
            deliver(claim(memory, "poll", 2), memory, NEVER)
            OutboxMessage.objects.filter(state="pending").update(available_at=database_now())

    race(*[work for _ in range(4)])
    state = ChannelState.objects.get()
    assert (state.breaker, state.failures >= 5) == ("open", True)
    assert set(OutboxMessage.objects.values_list("attempts", flat=True)) == {0}


def test_two_workers_stay_below_the_rate(install):
    memory = install(Scripted(rate=20.0))
    fill(60)
    permits.ensure(["memory"])
    started = database_now()

    def work():
        taken = 0
        while (database_now() - started).total_seconds() < 1.5:
            taken += len(claim(memory, "poll", 10).messages)
        return taken

    taken = sum(race(work, work, work))
    seconds = (database_now() - started).total_seconds()
    assert 2 <= taken <= 20 * seconds + 2


def test_a_new_channel_is_made_once(install):
    race(*[lambda: permits.ensure(["memory", "kafka"]) for _ in range(4)])
    assert ChannelState.objects.count() == 2


def test_order_writes_do_not_wait_for_a_claim(install):
    """MySQL locks whole ranges when a claim's order is not the index's: writers would time out."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    memory = install(Scripted())
    permits.ensure(["memory"])
    fill(50)
    with transaction.atomic():
        assert len(claim(memory, "poll", 10).messages) == 10
        (other,) = race(lambda: len(claim(memory, "poll", 10).messages))
        assert other == 10
        race(lambda: promise("order:new"))
