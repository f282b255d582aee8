"""Settling: again after a deadlock, only what is still held, and what it tells the channel."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import OperationalError

from config.database.clock import database_now
from config.processes import worker
from config.telemetry import metrics
from outbox.delivery import settle
from outbox.delivery.claim import Claim, claim
from outbox.delivery.deliver import deliver
from outbox.models import ChannelState
from tests.exported import exported
from tests.outbox.scripted import Outcome, Scripted, message, promise

pytestmark = pytest.mark.django_db


@pytest.fixture
def deadlocks(monkeypatch):
    """So many times settling ends in a deadlock; lists the transactions that were tried."""
    tried: list[int] = []
    real = settle._settle_whatever_they_say

    def begin(number: int) -> list[int]:
        def deadlock(*arguments):
            tried.append(len(tried) + 1)
            if len(tried) <= number:
                raise OperationalError(1213, "Deadlock found")
            return real(*arguments)

        monkeypatch.setattr(settle, "_settle_whatever_they_say", deadlock)
        monkeypatch.setattr(worker, "wait_for_rerun", lambda *_, **__: None)
        return tried

    return begin


def test_a_deadlock_is_settled_again_because_the_mail_has_left(memory, go, deadlocks):
    tried = deadlocks(2)
    pk = promise()
    assert go(memory) == 1
    assert (len(tried), len(memory.calls), message(pk).state) == (3, 1, "sent")


@pytest.mark.parametrize(
    ("stopped", "left", "tries"),
    [(False, 10.0, 42), (True, 10.0, 21), (True, 3.0, 14), (False, -0.1, 1), (True, -0.1, 1)],
)
def test_settling_is_tried_again_while_the_lease_lasts_and_for_five_seconds_when_stopped(
    memory, deadlocks, monkeypatch, stopped, left, tries
):
    """After the lease another worker may hold the message, and decides. A try takes as long as the database lets it."""
    tried, stop, clock = deadlocks(1000), threading.Event(), [0.0]
    monkeypatch.setattr(worker, "wait_for_rerun", lambda *_, **__: clock.append(clock[-1] + 0.25))
    promise()
    found = claim(memory, "poll", 10)

    def during_the_call(messages):
        monkeypatch.setattr(Claim, "lease_left", property(lambda _: left - clock[-1]))
        monkeypatch.setattr(settle, "time", SimpleNamespace(monotonic=lambda: clock[-1]))
        if stopped:
            stop.set()

    memory.before = during_the_call
    with pytest.raises(OperationalError):
        deliver(found, memory, stop)
    assert len(tried) == tries


@pytest.mark.parametrize(("acknowledges", "calls"), [("each", 1), ("batch", 0)])
def test_who_is_told_to_stop_waits_for_a_call_whose_attempt_is_written_down_before(install, go, acknowledges, calls):
    """Else that mail is sent again."""
    memory, awaited = install(Scripted(acknowledges=acknowledges)), []
    memory.timeout = 30.0
    memory.before = lambda _: awaited.append([until - time.monotonic() for until in worker._calls.values()])
    promise()
    go(memory)
    (lefts,) = awaited
    assert (len(lefts), worker._calls) == (calls, {})
    assert all(0 < left <= 30.0 for left in lefts)


def test_of_several_waits_in_one_call_the_longest_counts(install, go):
    memory = install(Scripted(acknowledges="batch"))
    told = [20, 90, 0]
    for number, seconds in enumerate(told):
        promise(f"order:{number}")
        memory.answers.append(Outcome("throttled", "429", retry_after=seconds))
    before = database_now()
    go(memory)
    assert ChannelState.objects.get().wait_until >= before + timedelta(seconds=90)


def test_tries_are_counted_by_the_types_of_event_that_a_flow_knows(install, go):
    """Any service may promise any type: each would be a series that never goes away."""
    handler = install(Scripted(name="counted"))
    handler.answers.append(Outcome("permanent", "no"))
    for number, event_type in enumerate(("order.paid", "order.paid", "invoice.issued", "a7f3", "a7f4")):
        promise(f"order:{number}", channel="counted", event_type=event_type)
    go(handler)
    counted = exported(metrics.DELIVERIES, channel="counted")
    assert sum(counted.values()) == 5
    assert {event_type for _, event_type, _ in counted} == {"order.paid", "other"}
