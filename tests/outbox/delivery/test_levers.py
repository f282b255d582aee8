"""Levers on messages, called past the admin: each moves the state it is for, and no other."""

from __future__ import annotations

from datetime import timedelta

import pytest

from config.admin.levers import Operator
from config.database.clock import database_now
from outbox.delivery import levers
from outbox.models import OutboxMessage
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
    before = OutboxMessage.objects.exclude(pk=found[ready]).order_by("pk").values()
    kept = list(before)
    assert lever(list(found.values()), ME, "all of them") == 1
    assert list(before.all()) == kept
