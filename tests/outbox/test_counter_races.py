"""Processes and threads that count at the same time: none waits for the transaction of another one, and nothing is lost."""

import threading

import pytest
from django.db import connection, transaction

from config.database.clock import database_now
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import FlowCounter, FlowMinute
from tests.outbox.race import race

pytestmark = pytest.mark.django_db(transaction=True)
PROCESS = threading.local()
MAILED = ("outbox", "email", "sent")
READ = ("transfer-requests", "3", "read")


@pytest.fixture(autouse=True)
def processes(monkeypatch):
    """Threads with numbers of ours; two whose slots differ."""
    here = threading.get_native_id()
    monkeypatch.setattr(counters.threading, "get_native_id", lambda: getattr(PROCESS, "id", here))
    return next((1, other) for other in range(2, 200) if counters._slot(other) != counters._slot(1))


def as_process(number, work):
    def run():
        PROCESS.id = number
        return work()

    return run


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer")
def test_nobody_waits_until_another_process_has_committed(processes):
    both_have_counted = threading.Barrier(2)

    def work():
        with transaction.atomic():
            counters.add({MAILED: 2}, database_now())
            both_have_counted.wait(10)  # on one row, the second would not come here before the first is gone

    race(*(as_process(number, work) for number in processes))
    assert counters.totals("outbox") == {"sent": 4}


def test_readers_sum_what_processes_have_counted(processes):
    now = database_now()
    for number in (*processes, processes[0]):
        as_process(number, lambda: counters.add({MAILED: 1, READ: 5}, now))()
    del PROCESS.id
    assert counters.totals("outbox") == {"sent": 3}
    assert counters.by_scope("outbox") == {"email": {"sent": 3}}
    assert counters.of_last_hour(["outbox"], now)["sent"][-1] == 3
    assert sorted(FlowCounter.objects.filter(flow="outbox").values_list("value", flat=True)) == [1, 2]
    assert FlowMinute.objects.filter(flow="outbox").count() == 2


def test_the_one_writer_of_a_partition_needs_one_row(processes):
    for number in processes:
        as_process(number, lambda: counters.add({READ: 5}, database_now()))()
    del PROCESS.id
    assert FlowCounter.objects.get().value == 10


def test_an_owner_that_moves_to_another_process_raises_the_same_row(processes):
    for number, total in zip(processes, (7, 9), strict=True):
        as_process(
            number, lambda total=total: counters.store_totals({("throttler", "0", "live"): total}, database_now())
        )()
    del PROCESS.id
    assert (counters.totals("throttler"), FlowCounter.objects.count()) == ({"live": 9}, 1)
