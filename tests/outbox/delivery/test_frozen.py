"""A relay is frozen at every line between its claim and its settlement, past its lease, while others finish its work."""

from __future__ import annotations

import linecache
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from config.database.clock import database_now
from outbox.delivery import overdue
from outbox.delivery.claim import claim
from outbox.delivery.deliver import deliver
from outbox.models import OutboxMessage
from outbox.verify import checks
from tests.frozen import Point, frozen_at
from tests.outbox.scripted import Scripted, message, promise

pytestmark = pytest.mark.django_db(transaction=True)
NEVER = threading.Event()
TRACED = [str(Path(overdue.__file__).parent)]


def others_finish(memory: Scripted) -> None:
    """Recovery, the decision about what is uncertain, and another worker's round."""
    overdue.rescue(database_now())
    OutboxMessage.objects.filter(state="uncertain").update(available_at=database_now())
    overdue.decide_uncertain(memory)
    deliver(claim(memory, "poll", 10), memory, NEVER)


def frozen_once(memory: Scripted, at: Point | None) -> list[Point]:
    """Deliver one message, frozen at a point; returns the points that were passed."""
    pk = promise(f"order:{at}"[-100:])
    claimed = claim(memory, "poll", 10)
    # The worker looks at a clock of its own, and that stands still with it.
    OutboxMessage.objects.filter(pk=pk).update(lease_until=database_now() - timedelta(seconds=1))

    passed = frozen_at(at, lambda: deliver(claimed, memory, NEVER), lambda: others_finish(memory), TRACED)
    others_finish(memory)
    row = message(pk)
    assert (row.state, memory.accepted.count(pk) >= 1) == ("sent", True), at
    assert memory.accepted.count(pk) <= 1 + row.times_uncertain, at
    return passed


@pytest.mark.skipif(connection.vendor == "sqlite", reason="whoever is frozen in a transaction stops all others")
def test_frozen_at_any_line_nothing_leaves_twice_unmarked(install):
    memory = install(Scripted())
    points = frozen_once(memory, None)
    assert {Path(file).name for file, *_ in points} >= {"deliver.py", "settle.py", "claim.py"}
    for point in points:
        frozen_once(memory, point)
    assert memory.repeats, "nobody was frozen behind an attempt"
    assert [check for check in checks() if not check.ok] == []


def frozen_batch(memory: Scripted, at: Point | None) -> list[Point]:
    """Send one message of a channel that repeats without harm; while it is frozen, that one and a newer one leave."""
    aggregate = f"order:{at}"[-100:]
    first, newer = promise(aggregate), []
    claimed = claim(memory, "poll", 10)

    def others() -> None:
        claimed.taken_at -= settings.OUTBOX_LEASE_SECONDS
        OutboxMessage.objects.filter(pk=first).update(lease_until=database_now() - timedelta(seconds=1))
        others_finish(memory)
        newer.append(promise(aggregate))
        others_finish(memory)

    passed = frozen_at(at, lambda: deliver(claimed, memory, NEVER), others, TRACED)
    others_finish(memory)
    left = [pk for pk in memory.accepted if pk in (first, *newer)]
    assert list(dict.fromkeys(left)) == [first, *newer], at
    if left.count(first) > 1:
        lines = [linecache.getline(*point[:2]) for point in passed]
        tried = next(place for place, line in enumerate(lines) if "self.tried += chunk" in line)
        last_look = max(place for place, line in enumerate(lines[:tried]) if "self.taken_at + " in line)
        assert passed.index(at) > last_look, at
    return passed


@pytest.mark.skipif(connection.vendor == "sqlite", reason="whoever is frozen in a transaction stops all others")
def test_frozen_at_any_line_a_batch_repeats_what_left_and_overtakes_nothing(install):
    """Behind the last look at its lease it may say the first once more, under its id, which rises in an aggregate."""
    memory = install(Scripted(acknowledges="batch"))
    for point in (point for point in frozen_batch(memory, None) if point[2] == 1):
        frozen_batch(memory, point)
    assert memory.repeats
    assert [check for check in checks() if not check.ok] == []
