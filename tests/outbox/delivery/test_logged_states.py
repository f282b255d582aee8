"""Each state that a message comes to is a line of the log, once it is committed, with the message's ids."""

from __future__ import annotations

import threading
import uuid

import pytest

from config.admin.levers import Operator
from config.database.clock import database_now
from outbox.channels.permits import ensure
from outbox.delivery import levers, overdue
from outbox.delivery.claim import claim
from outbox.delivery.deliver import deliver
from outbox.letters import levers as letter_levers
from outbox.letters.models import DeadLetter
from outbox.messages.publish import confirm
from outbox.models import OutboxMessage
from tests.logged import lines
from tests.outbox.scripted import AMBIGUOUS, PERMANENT, SENT, TRANSIENT, Scripted, promise

pytestmark = pytest.mark.django_db
ADA = Operator("ada")


@pytest.fixture
def told(caplog, django_capture_on_commit_callbacks):
    """The events that an act has logged: those of messages with their ids and nothing else, in their order."""

    def run(act, *arguments, **more) -> list[str]:
        caplog.clear()
        with caplog.at_level("INFO"), django_capture_on_commit_callbacks(execute=True):
            act(*arguments, **more)
        return [line["event"] for line in lines(caplog)]

    return run


@pytest.mark.parametrize(
    ("outcome", "state", "event", "more"),
    [
        (SENT, "sent", "messages_sent", []),
        (TRANSIENT, "pending", "messages_retried", ["delivery_failed"]),
        (AMBIGUOUS, "uncertain", "messages_uncertain", ["delivery_failed"]),
        (PERMANENT, "dead_lettered", "messages_dead", ["delivery_failed", "letters_opened", "groups_moved"]),
    ],
)
def test_a_try_tells_of_the_claim_and_of_what_came_of_it(memory, go, told, caplog, outcome, state, event, more):
    pk = promise("order:7", correlation_id="c-7")
    memory.answers.append(outcome)
    assert sorted(told(go, memory)) == sorted(["messages_claimed", event, *more])
    assert OutboxMessage.objects.get().state == state
    ids = {
        "message_id": [str(pk)],
        "aggregate": ["order:7"],
        "order_id": ["7"],
        "event_type": ["order.paid"],
        "correlation_id": ["c-7"],
        "more": 0,
    }
    for line in lines(caplog):
        if line["event"] not in ("letters_opened", "groups_moved"):
            assert ids.items() <= line.items()
            assert (line["channel"], line["messages"]) == ("memory", 1)


def test_a_transaction_is_one_line_however_many_messages_it_has(install, go, told, caplog, settings):
    settings.OUTBOX_BATCH = 500
    memory = install(Scripted(acknowledges="batch"))
    ensure([memory.name])
    for number in range(120):
        promise(f"order:{number}")
    assert told(go, memory, most=500) == ["messages_claimed", "messages_sent"]
    for line in lines(caplog):
        assert (line["messages"], len(line["message_id"]), line["more"]) == (120, 100, 20)


def test_of_what_was_claimed_a_line_names_only_what_was_sent(install, go, told, caplog):
    memory = install(Scripted(acknowledges="batch"))
    ensure([memory.name])
    pks = [str(promise(f"order:{number}")) for number in range(3)]
    memory.answers += [SENT, PERMANENT, SENT]
    told(go, memory)
    ids = {line["event"]: line["message_id"] for line in lines(caplog) if "message_id" in line}
    assert (ids["messages_claimed"], ids["messages_sent"], ids["messages_dead"]) == (pks, [pks[0], pks[2]], [pks[1]])


def test_who_lost_the_lease_says_which_messages_and_nothing_else_of_them(memory, told, caplog):
    pk = promise()
    found = claim(memory, "poll", 10)
    memory.before = lambda _: OutboxMessage.objects.update(lease_token=uuid.uuid4())
    assert told(deliver, found, memory, threading.Event()) == ["fence_lost"]
    (line,) = lines(caplog)
    assert (line["table"], line["lost"], line["message_id"]) == ("outbox_message", 1, [str(pk)])


def test_every_other_change_of_a_message_is_told(memory, go, later, told):
    assert told(promise, "order:1") == ["message_published"]
    memory.answers += [TRANSIENT]
    go(memory)
    (pk,) = OutboxMessage.objects.values_list("pk", flat=True)
    assert told(levers.retry_now, [pk], ADA, "now") == ["messages_changed", "action_recorded"]
    memory.answers += [AMBIGUOUS]
    go(memory)
    later(3600)
    assert told(overdue.decide_uncertain, memory) == ["messages_retried"]
    assert told(confirm, {pk: "r-1"}, database_now()) == ["messages_confirmed"]

    pk = promise("order:2")
    stopped = threading.Event()
    stopped.set()
    assert told(go, memory, stop=stopped) == ["messages_claimed", "messages_released"]
    claim(memory, "poll", 10)
    OutboxMessage.objects.filter(pk=pk).update(lease_until=database_now())
    assert told(overdue.rescue, database_now()) == ["claims_recovered"]
    later(10**7, pk=pk)
    assert sorted(told(overdue.expire_due, "memory")) == ["groups_moved", "letters_opened", "messages_expired"]
    assert sorted(told(letter_levers.pull, "requeue", list(DeadLetter.objects.values_list("pk", flat=True)), ADA, "again")) == [
        "action_recorded", "letters_moved", "messages_revived",
    ]  # fmt: skip
    assert told(levers.cancel, [pk], ADA, "wrong") == ["messages_changed", "action_recorded"]
