"""The relay: woken, paced, and leaving young messages to CDC as long as CDC is alive."""

import threading
import time
import uuid
from datetime import timedelta
from types import SimpleNamespace
from typing import get_args

import pytest
from django.core.management import CommandError, call_command

from config.admin.levers import Operator
from config.database.clock import database_now
from config.fields import uuid7_milliseconds
from config.kafka import topic_name
from config.processes import worker as loop
from config.telemetry import metrics
from outbox.bookkeeping.models import JobLease, Watermark
from outbox.channels import handlers, permits
from outbox.channels.handlers import Kind, handlers_fit_the_lease
from outbox.models import ChannelState, OutboxMessage
from outbox.tasks import relay_outbox
from outbox.workers import change_capture, start
from outbox.workers.relay import Relay
from tests.exported import exported
from tests.outbox.scripted import message, promise, states

ALONE = pytest.mark.django_db(transaction=True)
db = pytest.mark.django_db


def heartbeat(age: float = 0.0) -> None:
    Watermark.objects.update_or_create(
        group=topic_name(change_capture.CDC_GROUP), topic="t", partition=0,
        defaults={"next_offset": 0, "updated_at": database_now() - timedelta(seconds=age)},
    )  # fmt: skip


@db
def test_young_messages_are_left_to_cdc_while_it_is_alive(memory):
    heartbeat()
    pk = promise()
    worker = Relay(memory, threading.Event())
    assert worker.tick() == 0
    assert message(pk).state == "pending"


def brought(pk: uuid.UUID, *, and_it: bool = True) -> None:
    """CDC has brought everything before this message, and this one, too, or not."""
    change_capture.note_seen(uuid7_milliseconds(pk) - (not and_it), database_now())


@db
def test_a_message_that_cdc_left_lying_is_the_pollers_and_so_are_all_others(memory):
    heartbeat()
    old, young = promise("order:1"), promise("order:2")
    brought(young)
    ago = database_now() - timedelta(seconds=6)
    OutboxMessage.objects.filter(pk=old).update(created_at=ago, available_at=ago)
    Relay(memory, threading.Event()).tick()
    assert (message(old).state, message(young).state) == ("sent", "sent")


@db
@pytest.mark.parametrize("ever", [True, False])
def test_cdc_that_has_not_brought_what_is_older_than_the_grace_is_waited_for_no_more(memory, ever):
    """The listener beats, and nothing lies about: the poller has sent it after the grace."""
    heartbeat()
    missed = promise("order:1")
    if ever:
        brought(missed, and_it=False)
    OutboxMessage.objects.update(state="sent", created_at=database_now() - timedelta(seconds=8))
    young = promise("order:2")
    assert Relay(memory, threading.Event()).tick() == 1
    assert message(young).state == "sent"


@db
def test_cdc_that_brings_something_again_is_waited_for(memory):
    heartbeat()
    missed = promise("order:1")
    OutboxMessage.objects.update(state="sent", created_at=database_now() - timedelta(seconds=8))
    brought(missed)
    young = promise("order:2")
    assert Relay(memory, threading.Event()).tick() == 0
    assert message(young).state == "pending"


@db
def test_an_id_of_the_future_does_not_make_cdc_look_alive_for_ever(memory):
    now = database_now()
    change_capture.note_seen(int(now.timestamp() * 1000) + 3_600_000, now)
    assert ChannelState.objects.get().cdc_seen_at == now


@db
@pytest.mark.parametrize("age", [None, 11.0])
def test_without_a_heartbeat_the_poller_waits_for_nobody(memory, age):
    if age is not None:
        heartbeat(age)
    promise()
    assert Relay(memory, threading.Event()).tick() == 1
    assert states() == {"sent": 1}


@db
def test_the_lag_of_cdc_is_the_age_of_what_it_has_not_brought(memory):
    assert change_capture.cdc_lag(database_now()) is None
    first = promise("order:1")
    change_capture.note_seen(first.int >> 80, database_now())
    assert change_capture.cdc_lag(database_now()) == 0.0
    time.sleep(0.005)
    second = promise("order:2")
    now = database_now() + timedelta(seconds=90)
    assert change_capture.cdc_lag(now) == pytest.approx((now - message(second).created_at).total_seconds())
    change_capture.note_seen(second.int >> 80, database_now())
    change_capture.note_seen(first.int >> 80, database_now())  # an old hint moves nothing back
    assert change_capture.cdc_lag(now) == 0.0


@ALONE
def test_once_sends_what_is_due_and_ends(memory):
    for n in range(5):
        promise(f"order:{n}")
    metrics.DELIVERIES.clear()
    metrics.OUTBOX_CLAIMS.clear()
    start.relay(None, threading.Event(), once=True)
    assert states() == {"sent": 5}
    tries = exported(metrics.DELIVERIES, channel="memory")
    assert sorted(tries.values())[-2:] == [0, 5]  # Prometheus sees the five from 0 on
    assert exported(metrics.OUTBOX_CLAIMS) == {("poll",): 5}


@ALONE
@pytest.mark.parametrize(
    ("work", "path"),
    [
        (lambda: start.relay(None, threading.Event(), once=True), "poll"),
        (lambda: start.relay_round(1), "poll"),
        (lambda: start.listen(threading.Event()), "cdc"),
    ],
    ids=["relay", "round of beat", "listener"],
)
def test_whoever_delivers_exports_zeros_before_it_counts(memory, monkeypatch, settings, work, path):
    settings.FLOWS = ["no.such.Flow"]  # none is imported for the types of messages
    monkeypatch.setattr(start, "consumer_of", lambda *_, **__: SimpleNamespace(run=lambda **_: None))
    metrics.DELIVERIES.clear()
    metrics.OUTBOX_CLAIMS.clear()
    work()
    tries = exported(metrics.DELIVERIES, channel="memory")
    assert {outcome for _, _, outcome in tries} == set(get_args(Kind))
    assert {event_type for _, event_type, _ in tries} >= {"order.paid", "other"}
    assert set(tries.values()) == {0}
    assert exported(metrics.OUTBOX_CLAIMS) == {(path,): 0}


@db
def test_a_round_of_beat_sends_what_is_due_unless_another_is_at_it(memory):
    promise()
    assert relay_outbox() == "1 moved"
    JobLease.objects.update(until=database_now() + timedelta(minutes=1))
    assert relay_outbox() == "another process is at it"


@db
def test_a_channel_nobody_knows_is_refused_with_its_setting(memory):
    with pytest.raises(CommandError, match="HANDLERS has no channel 'pigeon'; it has memory"):
        call_command("relay_outbox", "--once", "--channel", "pigeon")


@db
@pytest.mark.parametrize("path", ["notifications.email_handler.EmailHandlr", "notifications.handlr.EmailHandler"])
def test_a_slip_of_the_pen_in_handlers_is_one_line(settings, path):
    settings.HANDLERS = {"email": path}
    handlers.installed.clear()
    try:
        with pytest.raises(CommandError, match=r"^HANDLERS\['email'\]: [^\n]+$"):
            call_command("relay_outbox", "--once")
        assert handlers_fit_the_lease(None) == []
    finally:
        handlers.installed.clear()


@db
def test_a_lease_shorter_than_a_call_is_refused(memory, settings):
    settings.OUTBOX_LEASE_SECONDS = 30
    memory.timeout = 28
    assert "OUTBOX_LEASE_SECONDS: 30 is too short for channel memory" in handlers.misfit(memory)
    with pytest.raises(CommandError, match="OUTBOX_LEASE_SECONDS"):
        call_command("relay_outbox", "--once")


@db
def test_what_waits_is_slept_for_and_no_longer(memory):
    worker = Relay(memory, threading.Event())
    worker.doorbell.listens = False
    assert worker.tick() == 0
    assert [worker.pause() for _ in range(7)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0]
    promise()
    OutboxMessage.objects.update(available_at=database_now() + timedelta(seconds=1))
    assert 0 < worker.pause() <= 1.1
    OutboxMessage.objects.update(available_at=database_now())
    assert worker.tick() == 1
    assert worker.pause() == 0.05


@db
def test_a_paused_channel_is_not_looked_at_without_pause(memory):
    promise()
    permits.pause("memory", Operator("me"), "x")
    worker = Relay(memory, threading.Event(), longest_sleep=0.2)
    assert worker.tick() == 0
    started = time.monotonic()
    worker.pause()
    assert time.monotonic() - started >= 0.15


def test_the_first_failure_stops_all_workers_and_is_raised():
    stop = threading.Event()

    def broken():
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        loop.together([lambda: stop.wait(30), broken], stop)
    assert stop.is_set()
