"""The relay: woken, paced, and leaving young messages to CDC as long as CDC is alive."""

import threading
import time
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections

from config import loop
from config.clock import database_now
from config.kafka import topic_name
from outbox import cdc_health, channels, handlers, wake
from outbox.audit import Operator
from outbox.checks import handlers_fit_the_lease
from outbox.models import JobLease, OutboxMessage, Watermark
from outbox.relay import Relay
from outbox.tasks import relay_outbox
from outbox.workers import relay
from tests.outbox.race import race
from tests.outbox.scripted import message, promise, states

ALONE = pytest.mark.django_db(transaction=True)
db = pytest.mark.django_db


def heartbeat(age: float = 0.0) -> None:
    Watermark.objects.update_or_create(
        group=topic_name(cdc_health.GROUP), topic="t", partition=0,
        defaults={"next_offset": 0, "updated_at": database_now() - timedelta(seconds=age)},
    )  # fmt: skip


@db
def test_young_messages_are_left_to_cdc_while_it_is_alive(memory):
    heartbeat()
    pk = promise()
    worker = Relay(memory, threading.Event())
    assert worker.tick() == 0
    assert message(pk).state == "pending"


@db
def test_a_message_that_cdc_left_lying_is_the_pollers_and_so_are_all_others(memory):
    heartbeat()
    old, young = promise("order:1"), promise("order:2")
    ago = database_now() - timedelta(seconds=6)
    OutboxMessage.objects.filter(pk=old).update(created_at=ago, available_at=ago)
    Relay(memory, threading.Event()).tick()
    assert (message(old).state, message(young).state) == ("sent", "sent")


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
    assert cdc_health.cdc_lag(database_now()) is None
    first = promise("order:1")
    cdc_health.seen(first.int >> 80, database_now())
    assert cdc_health.cdc_lag(database_now()) == 0.0
    time.sleep(0.005)
    second = promise("order:2")
    now = database_now() + timedelta(seconds=90)
    assert cdc_health.cdc_lag(now) == pytest.approx((now - message(second).created_at).total_seconds())
    cdc_health.seen(second.int >> 80, database_now())
    cdc_health.seen(first.int >> 80, database_now())  # an old hint moves nothing back
    assert cdc_health.cdc_lag(now) == 0.0


@ALONE
def test_once_sends_what_is_due_and_ends(memory):
    for n in range(5):
        promise(f"order:{n}")
    relay(None, threading.Event(), once=True)
    assert states() == {"sent": 5}


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


@pytest.mark.parametrize("path", ["notifications.handler.EmailHandlr", "notifications.handlr.EmailHandler"])
def test_a_slip_of_the_pen_in_handlers_is_one_line(settings, path):
    settings.HANDLERS = {"email": path}
    handlers.handlers.cache_clear()
    try:
        with pytest.raises(CommandError, match=r"^HANDLERS\['email'\]: [^\n]+$"):
            call_command("relay_outbox", "--once")
        assert handlers_fit_the_lease(None) == []
    finally:
        handlers.handlers.cache_clear()


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
    worker.bell.audible = False
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
    channels.pause("memory", Operator("me"), "x")
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


def running(handler, stop: threading.Event) -> threading.Thread:
    def work():
        worker = Relay(handler, stop)
        try:
            loop.run(worker.tick, stop, pause=worker.pause)
        finally:
            worker.close()
            connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@ALONE
def test_commits_wake_the_relay_and_none_of_a_burst_is_forgotten(memory, settings):
    """On PostgreSQL by the bell, with polls of a minute; elsewhere by looking often."""
    stop = threading.Event()
    thread = running(memory, stop)
    try:
        time.sleep(0.5)
        waits = []
        for n in range(60):
            started = time.monotonic()
            # Two at once: the second one's ring falls into the silence after the first.
            pks = [promise(f"order:{n}"), promise(f"other:{n}")]
            deadline = started + 20
            while not set(pks) <= set(memory.accepted) and time.monotonic() < deadline:
                time.sleep(0.002)
            assert set(pks) <= set(memory.accepted)
            waits.append(time.monotonic() - started)
            time.sleep(0.01 * (n % 5))
        assert sorted(waits)[30] < 1.0
    finally:
        stop.set()
        thread.join(30)
    assert not memory.repeats


@ALONE
def test_a_lost_bell_is_hung_up_again(memory):
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL rings")
    stop = threading.Event()
    bell = wake.Doorbell(stop)
    assert bell.wait(5)  # whatever was committed before
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN %%' AND datname = current_database()"
        )
    assert bell.wait(10)  # another connection, and whatever was committed before
    race(wake.ring)
    assert bell.wait(5)
    bell.close()


@ALONE
def test_rings_of_one_process_are_few(memory, monkeypatch):
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL rings")
    rung: list[float] = []
    monkeypatch.setattr(wake.Ringer, "_notify", lambda self: rung.append(time.monotonic()) or True)
    started = time.monotonic()
    for _ in range(50):
        wake.ring()
        last = time.monotonic()
        time.sleep(0.001)
    deadline = last + 5
    while (not rung or rung[-1] < last) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert 1 < len(rung) <= (rung[-1] - started) / wake.SILENCE + 2
    assert rung[-1] >= last  # no commit stays without a ring after it


RINGERS = "FROM pg_stat_activity WHERE query LIKE 'NOTIFY %' AND datname = current_database()"


@pytest.fixture
def bell(memory):
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL rings")
    bell = wake.Doorbell(threading.Event())
    assert bell.wait(5)  # whatever was committed before
    yield bell
    bell.close()


@ALONE
def test_a_process_that_ends_has_rung(bell):
    wake.ring()
    assert bell.wait(5)
    wake.ring()  # within the silence after the first one
    wake.hush()
    assert bell.wait(1)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pid {RINGERS}")
        assert not cursor.fetchall()


@ALONE
def test_whoever_lost_its_session_rings_again(bell):
    wake.ring()
    assert bell.wait(5)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pg_terminate_backend(pid) {RINGERS}")
        assert len(cursor.fetchall()) == 1
    wake.ring()
    assert bell.wait(5)


@ALONE
def test_threads_that_commit_first_together_have_one_ringer(bell, monkeypatch):
    made: list[wake.Ringer] = []
    real = wake.Ringer

    def slow(using: str) -> wake.Ringer:
        time.sleep(0.01)
        made.append(real(using))
        return made[-1]

    wake.hush()
    monkeypatch.setattr(wake, "Ringer", slow)
    race(*[wake.ring] * 8)
    assert len(made) == 1
    assert bell.wait(5)
