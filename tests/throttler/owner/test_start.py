"""How a throttler starts: with the database's time, and not before the database is there."""

import threading
import time

import pytest
from django.db import OperationalError

from config.kafka.runtime.membership import Membership
from tests.throttler.owner.conftest import ids_in, ids_of, notification
from throttler.live.sending import EXPIRED, OUTPUT
from throttler.owner import worker

pytestmark = pytest.mark.django_db(transaction=True)
HOUR_NS = 3_600_000_000_000


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_host_whose_clock_is_off_gives_no_fresh_burst_and_expires_nothing(send, run, customer, monkeypatch, hours):
    customer("slow", "6/hour", 2)
    values = [notification("slow", ttl_seconds=1800) for _ in range(6)]
    send(*values)
    run(once=True)
    here = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: here() + hours * HOUR_NS)
    run(once=True)
    assert (ids_in(OUTPUT), ids_in(EXPIRED)) == ({"slow": ids_of(values[:2])}, {})


def test_a_database_that_is_away_is_waited_for_before_anybody_gives_up_a_partition(send, run, monkeypatch):
    """A member that knows no rates could do nothing with it."""
    told, connect, answers = [], Membership.connect, iter([True, True])

    def database_now():
        told.append("asked")
        if next(answers, False):
            raise OperationalError("the server is away")
        return real()

    real = worker.database_now
    monkeypatch.setattr(worker, "database_now", database_now)
    monkeypatch.setattr(Membership, "connect", lambda self: told.append("joined") or connect(self))
    send(value := notification("one"))
    run()
    assert told == ["asked", "asked", "asked", "joined"]
    assert ids_in(OUTPUT) == {"one": ids_of([value])}


def test_who_is_told_to_stop_while_the_database_is_away_ends(monkeypatch):
    stop = threading.Event()

    def database_now():
        stop.set()
        raise OperationalError("the server is away")

    monkeypatch.setattr(worker, "database_now", database_now)
    monkeypatch.setattr(worker, "refuse_unfit_broker", pytest.fail)
    worker.throttle(stop)
