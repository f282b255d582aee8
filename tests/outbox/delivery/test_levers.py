"""Levers on messages, called past the admin: each moves the state it is for, and no other."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from config.admin.levers import Operator
from config.database.clock import database_now
from outbox.bookkeeping import counters
from outbox.delivery import levers
from outbox.letters.models import DeadLetter
from outbox.messages.models import FLOW
from outbox.models import DeliveryAttempt, OperatorAction, OutboxMessage
from tests.outbox.scripted import promise

pytestmark = pytest.mark.django_db(transaction=True)
ME = Operator("test")


@pytest.mark.parametrize(
    ("lever", "ready"),
    [
        (levers.cancel, "pending"), (levers.retry_now, "pending"), (levers.it_was_sent, "uncertain"),
        (levers.send_again, "uncertain"), (levers.give_up, "uncertain"),
    ],
)  # fmt: skip
def test_a_lever_moves_its_own_state_and_never_what_is_being_sent(memory, lever, ready):
    later = database_now() + timedelta(hours=1)
    found = {}
    for state in OutboxMessage.State.values:
        found[state] = promise(f"order:{state}")
        OutboxMessage.objects.filter(pk=found[state]).update(state=state, attempts=1, available_at=later)
        begun = {"number": 1, "lease_token": uuid4(), "path": "poll", "started_at": later}
        DeliveryAttempt.objects.create(message_id=found[state], channel="memory", **begun)
    mine = str(found[ready])
    others = OutboxMessage.objects.exclude(pk=mine).order_by("pk").values()
    calls = DeliveryAttempt.objects.exclude(message_id=mine).order_by("pk").values()
    kept = list(others), list(calls)
    assert lever(list(found.values()), ME, "all of them") == 1
    assert (list(others.all()), list(calls.all())) == kept
    assert OperatorAction.objects.get().detail["ids"] == [mine]
    assert not DeadLetter.objects.exclude(topic_id=mine).exists()
    assert sum(counters.totals(FLOW).values()) == (lever is not levers.retry_now)
