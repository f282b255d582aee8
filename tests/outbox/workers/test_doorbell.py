"""The doorbell: a commit sends NOTIFY, a relay receives it, and nothing waits for one that is never sent."""

import threading
import time
from contextlib import contextmanager

import pytest
from django.db import connection, connections

from config.processes import worker as loop
from outbox.delivery.candidates import is_due
from outbox.delivery.claim import claim
from outbox.messages import notify
from outbox.workers import relay
from outbox.workers.relay import Relay
from tests.crash.wire import wait_for
from tests.outbox.race import race
from tests.outbox.scripted import promise

ALONE = pytest.mark.django_db(transaction=True)
NOTIFIED = pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL has NOTIFY")


@contextmanager
def running(handler):
    """A relay on a thread, until the end of the block."""
    stop = threading.Event()

    def work():
        worker = Relay(handler, stop)
        try:
            loop.run(worker.tick, stop, pause=worker.pause)
        finally:
            worker.close()
            connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)


@ALONE
def test_commits_wake_the_relay_and_none_of_a_burst_is_forgotten(memory):
    """On PostgreSQL by NOTIFY, with polls of a minute; elsewhere by polling often."""
    with running(memory):
        time.sleep(0.5)
        waits = []
        for n in range(60):
            started = time.monotonic()
            # Two at once: the second one falls into the pause after the NOTIFY of the first.
            pks = [promise(f"order:{n}"), promise(f"other:{n}")]
            wait_for(lambda pks=pks: set(pks) <= set(memory.accepted), 20, "both", pause=0.002)
            waits.append(time.monotonic() - started)
            time.sleep(0.01 * (n % 5))
        assert sorted(waits)[30] < 1.0
    assert not memory.repeats


@ALONE
@NOTIFIED
def test_a_lost_listener_listens_again(memory):
    stop = threading.Event()
    bell = relay.Doorbell(stop)
    assert bell.wait(5)  # whatever was committed before
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN %%' AND datname = current_database()"
        )
    assert bell.wait(10)  # another connection, and whatever was committed before
    race(notify.notify_relays)
    assert bell.wait(5)
    bell.close()


@ALONE
@NOTIFIED
def test_one_process_sends_few_notifies(memory, monkeypatch):
    sent: list[float] = []
    monkeypatch.setattr(notify.Notifier, "_notify", lambda self: sent.append(time.monotonic()) or True)
    started = time.monotonic()
    for _ in range(50):
        notify.notify_relays()
        last = time.monotonic()
        time.sleep(0.001)
    deadline = last + 5
    while (not sent or sent[-1] < last) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert 1 < len(sent) <= (sent[-1] - started) / notify.PAUSE + 2
    assert sent[-1] >= last  # no commit stays without a NOTIFY after it


SESSIONS = "FROM pg_stat_activity WHERE query LIKE 'BEGIN; %NOTIFY %' AND datname = current_database()"


@pytest.fixture
def bell(memory):
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL has NOTIFY")
    bell = relay.Doorbell(threading.Event())
    assert bell.wait(5)  # whatever was committed before
    yield bell
    bell.close()


@ALONE
def test_after_a_notify_a_relay_polls_until_the_next_one_could_have_come(bell, monkeypatch):
    """Of commits in the pause after a NOTIFY nobody is told for a fifth of a second."""
    assert relay.LOOKING > notify.PAUSE
    now = time.monotonic()
    monkeypatch.setattr(relay.time, "monotonic", lambda: now)
    bell._look_until = 0.0
    assert bell.longest_wait(60, 0.015) == 60
    notify.notify_relays()
    assert bell.wait(5)
    assert bell.longest_wait(60, 0.015) == 0.015
    assert bell.longest_wait(0.0, 0.015) == 0.0
    now += notify.PAUSE
    assert bell.longest_wait(60, 0.015) == 0.015
    now += relay.LOOKING
    assert bell.longest_wait(60, 0.015) == 60


@ALONE
@NOTIFIED
def test_what_is_committed_in_the_pause_leaves_long_before_the_next_notify(memory, monkeypatch):
    """The pause takes a minute here, and so do polls."""
    monkeypatch.setattr(notify, "PAUSE", 60.0)
    monkeypatch.setattr(relay, "LOOKING", 90.0)
    notify.stop_notifiers()
    with running(memory):
        for n in range(8):
            pk = promise(f"order:{n}")
            wait_for(lambda pk=pk: pk in memory.accepted, 5, "the message", pause=0.002)
            time.sleep(0.05)  # it has settled, and waits again


@ALONE
@NOTIFIED
def test_a_relay_that_looks_claims_only_what_is_there(memory, monkeypatch):
    """A claim is eight times the work of a look."""
    monkeypatch.setattr(relay, "LOOKING", 60.0)
    claims, looks = [], []
    monkeypatch.setattr(relay, "claim", lambda *args, **more: claims.append(args) or claim(*args, **more))
    monkeypatch.setattr(relay, "is_due", lambda *args: looks.append(args) or is_due(*args))
    with running(memory):
        promise("order:1")  # rings
        wait_for(lambda: len(looks) >= 20, 20, "looks", pause=0.01)
    assert memory.accepted
    assert len(claims) < 10  # at the start, for the NOTIFY, after what it moved


def test_looks_that_find_nothing_become_rare_and_a_short_rest_is_kept(memory, monkeypatch):
    worker, waited, now = Relay(memory, threading.Event()), [], 100.0
    worker.doorbell._look_until = now + 1

    def wait(seconds: float) -> bool:
        nonlocal now
        now += seconds
        waited.append(round(seconds, 3))
        return False

    monkeypatch.setattr(relay.time, "monotonic", lambda: now)
    monkeypatch.setattr(worker.doorbell, "wait", wait)
    monkeypatch.setattr(relay, "is_due", lambda channel, moment: False)
    worker._wait_for_commits(0.4)
    assert waited == [0.015, 0.03, 0.06, 0.1, 0.1, 0.095]
    waited.clear()
    monkeypatch.setattr(relay, "is_due", lambda channel, moment: len(waited) == 2)
    worker._wait_for_commits(0.4)
    assert waited == [0.015, 0.03], "what is found ends the wait, and the next one begins anew"


@ALONE
def test_a_process_that_ends_has_notified(bell):
    notify.notify_relays()
    assert bell.wait(5)
    notify.notify_relays()  # within the pause after the first one
    notify.stop_notifiers()
    assert bell.wait(1)

    def nobody_is_left() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT pid {SESSIONS}")
            return not cursor.fetchall()

    wait_for(nobody_is_left, 5, "the server to take note of a closed connection", pause=0.02)


@ALONE
def test_a_process_that_lost_its_session_notifies_again(bell):
    notify.notify_relays()
    assert bell.wait(5)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pg_terminate_backend(pid) {SESSIONS}")
        assert len(cursor.fetchall()) == 1
    notify.notify_relays()
    assert bell.wait(5)


@ALONE
def test_threads_that_commit_first_together_have_one_notifier(bell, monkeypatch):
    made: list[notify.Notifier] = []
    real = notify.Notifier

    def slow(using: str) -> notify.Notifier:
        time.sleep(0.01)
        made.append(real(using))
        return made[-1]

    notify.stop_notifiers()
    monkeypatch.setattr(notify, "Notifier", slow)
    race(*[notify.notify_relays] * 8)
    assert len(made) == 1
    assert bell.wait(5)


@ALONE
def test_behind_a_pooler_nobody_waits_for_a_notify_that_never_comes(memory, monkeypatch):
    """It shares sessions by transaction: whoever listens is another one with each of them."""
    monkeypatch.setitem(connection.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)
    assert not relay.Doorbell(threading.Event()).listens


@ALONE
def test_a_notify_leaves_nothing_behind_in_its_session(bell):
    """Behind a pooler the next transaction in it is somebody else's, and must reach the disk."""
    notifier = notify.Notifier("default")
    assert notifier._notify()
    assert bell.wait(5)
    with connection.cursor() as cursor:
        cursor.execute("SHOW synchronous_commit")
        assert cursor.fetchone() == ("on",)
    assert connection.connection.info.transaction_status.name == "IDLE"
