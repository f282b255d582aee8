"""The doorbell: who commits rings, who relays hears it, and nothing waits for a ring that nobody owed."""

import threading
import time

import pytest
from django.db import connection, connections

from config.processes import loop
from outbox.messages import notify
from outbox.workers import doorbell
from outbox.workers.relay import Relay
from tests.outbox.race import race
from tests.outbox.scripted import promise

ALONE = pytest.mark.django_db(transaction=True)


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
def test_commits_wake_the_relay_and_none_of_a_burst_is_forgotten(memory):
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
    bell = doorbell.Doorbell(stop)
    assert bell.wait(5)  # whatever was committed before
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN %%' AND datname = current_database()"
        )
    assert bell.wait(10)  # another connection, and whatever was committed before
    race(notify.ring)
    assert bell.wait(5)
    bell.close()


@ALONE
def test_rings_of_one_process_are_few(memory, monkeypatch):
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL rings")
    rung: list[float] = []
    monkeypatch.setattr(notify.Ringer, "_notify", lambda self: rung.append(time.monotonic()) or True)
    started = time.monotonic()
    for _ in range(50):
        notify.ring()
        last = time.monotonic()
        time.sleep(0.001)
    deadline = last + 5
    while (not rung or rung[-1] < last) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert 1 < len(rung) <= (rung[-1] - started) / notify.SILENCE + 2
    assert rung[-1] >= last  # no commit stays without a ring after it


RINGERS = "FROM pg_stat_activity WHERE query LIKE 'NOTIFY %' AND datname = current_database()"


@pytest.fixture
def bell(memory):
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL rings")
    bell = doorbell.Doorbell(threading.Event())
    assert bell.wait(5)  # whatever was committed before
    yield bell
    bell.close()


@ALONE
def test_after_a_ring_a_relay_looks_by_itself_until_the_next_one_could_have_come(bell, monkeypatch):
    """Commits in the silence after a ring are nobody else's news for a fifth of a second."""
    assert doorbell.LOOKING > notify.SILENCE
    now = time.monotonic()
    monkeypatch.setattr(doorbell.time, "monotonic", lambda: now)
    bell._look_until = 0.0
    assert bell.patience(60) == 60
    notify.ring()
    assert bell.wait(5)
    assert bell.patience(60) == doorbell.LOOK
    assert bell.patience(0.0) == 0.0
    now += notify.SILENCE
    assert bell.patience(60) == doorbell.LOOK
    now += doorbell.LOOKING
    assert bell.patience(60) == 60


@ALONE
def test_what_is_committed_in_the_silence_leaves_long_before_the_next_ring(memory, monkeypatch):
    """Whoever commits is silent for a minute here, and the relay polls as seldom."""
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL rings")
    monkeypatch.setattr(notify, "SILENCE", 60.0)
    monkeypatch.setattr(doorbell, "LOOKING", 90.0)
    notify.stop_ringers()
    stop = threading.Event()
    thread = running(memory, stop)
    try:
        for n in range(8):
            pk = promise(f"order:{n}")
            deadline = time.monotonic() + 5
            while pk not in memory.accepted and time.monotonic() < deadline:
                time.sleep(0.002)
            assert pk in memory.accepted
            time.sleep(0.05)  # it has settled, and waits again
    finally:
        stop.set()
        thread.join(30)


@ALONE
def test_a_process_that_ends_has_rung(bell):
    notify.ring()
    assert bell.wait(5)
    notify.ring()  # within the silence after the first one
    notify.stop_ringers()
    assert bell.wait(1)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pid {RINGERS}")
        assert not cursor.fetchall()


@ALONE
def test_whoever_lost_its_session_rings_again(bell):
    notify.ring()
    assert bell.wait(5)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pg_terminate_backend(pid) {RINGERS}")
        assert len(cursor.fetchall()) == 1
    notify.ring()
    assert bell.wait(5)


@ALONE
def test_threads_that_commit_first_together_have_one_ringer(bell, monkeypatch):
    made: list[notify.Ringer] = []
    real = notify.Ringer

    def slow(using: str) -> notify.Ringer:
        time.sleep(0.01)
        made.append(real(using))
        return made[-1]

    notify.stop_ringers()
    monkeypatch.setattr(notify, "Ringer", slow)
    race(*[notify.ring] * 8)
    assert len(made) == 1
    assert bell.wait(5)
