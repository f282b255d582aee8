"""Rotation beside writers and beside itself: whatever wins, no row is lost and none is counted twice."""

import threading
from dataclasses import replace

import pytest
from django.db import DatabaseError, connection, connections, transaction
from django.db.models import Sum

from config.partitions import apply, ensure_partitions, living_keys, plan_for, rotate
from config.partitions.rotation import driver_for
from tests.config.partitions import models
from tests.config.partitions.conftest import add, in_thread, month, months
from tests.config.partitions.models import Dropped, Monthly
from tests.config.partitions.test_rotation import conserved, outcomes, real, remove

WAIT = 30


def impatient():
    """SQLite's own patience is half a minute."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout = 200")


def test_a_writer_with_an_open_transaction_makes_the_drop_wait_and_then_refuse(monthly):
    add(-5)
    written, tried = threading.Event(), threading.Event()

    def write():
        with transaction.atomic():
            add(-5, name="open", status="pending")
            written.set()
            assert tried.wait(WAIT)

    impatient()
    plan = only(-5, plan_for(monthly))
    with in_thread(write):
        assert written.wait(WAIT)
        (step,) = apply(plan).steps
        tried.set()
    assert (step.action, step.reason) == ("keep", "busy, the next run tries again")
    (plan,) = rotate(specs=[monthly])
    assert outcomes(plan)[str(month(-5))].reason == "1 unfinished"
    assert Monthly.objects.count() == conserved() == 2


def test_a_writer_that_comes_while_the_rows_are_counted_loses_nothing(monthly, monkeypatch):
    """The hook runs inside the guard: from there on the writer cannot get in before the drop."""
    add(-5)
    counted, finished, results = threading.Event(), threading.Event(), []
    original = models.record

    def record(using, spec, partition):
        original(using, spec, partition)
        if partition.label == str(month(-5)):
            counted.set()
            finished.wait(0.3)  # a writer whom nothing stops is through by now

    def write():
        results.append(try_to_add(-5, counted))
        finished.set()

    monkeypatch.setattr("tests.config.partitions.models.record", record)
    with in_thread(write):
        plan = rotate(specs=[monthly])[0]
    assert plan.failures == []
    came = results[0]
    assert Monthly.objects.filter(name="late").count() == came
    # PostgreSQL refuses the row, or lets it in and gives the drop up; MySQL stores it with the next month,
    # SQLite between two chunks or after the last.
    assert conserved() == 1 + came
    if connection.vendor == "mysql":
        assert (came, outcomes(plan)[str(month(-5))].done) == (1, True)


def only(count, plan):
    """The plan's step for that month alone."""
    return replace(plan, steps=[step for step in plan.steps if step.partition.label == str(month(count))])


def try_to_add(count, start):
    """1 if the row was stored, 0 if the database refused it."""
    assert start.wait(WAIT)
    try:
        with transaction.atomic():
            add(count, name="late", status="pending")
    except DatabaseError:
        return 0
    return 1


def test_a_writer_and_a_drop_at_the_same_moment(monthly):
    """Eight months, eight starts from a barrier: every row that was stored is still there."""
    for count in range(-12, -4):
        add(count)
    stored = 0
    for count in range(-5, -13, -1):
        barrier, results = threading.Barrier(2), []

        def write(count=count, barrier=barrier, results=results):
            connection.ensure_connection()
            barrier.wait(WAIT)
            results.append(try_to_add(count, always))

        plan = only(count, plan_for(monthly))
        with in_thread(write):
            barrier.wait(WAIT)
            apply(plan)
        stored += results[0]
        assert Monthly.objects.filter(name="late").count() == stored
        assert conserved() == 8 + stored


always = threading.Event()
always.set()


def test_two_rotations_at_once(monthly):
    for count in range(-12, 0):
        add(count)
    if connection.vendor != "sqlite":
        remove(month(3), month(2))
    barrier, plans = threading.Barrier(2), []

    def turn():
        connection.ensure_connection()
        barrier.wait(WAIT)
        plans.extend(rotate(specs=[monthly]))

    with in_thread(turn):
        turn()
    assert [plan.failures for plan in plans] == [[], []]
    rotate(specs=[monthly])  # what one of them found busy
    assert months() == [str(month(count)) for count in range(-3, 4)]
    assert Monthly.objects.count() == 3
    assert conserved() == 12


@real
def test_two_workers_that_miss_the_same_partition(monthly):
    remove(month(3), month(2))
    barrier, made = threading.Barrier(2), []

    def ensure():
        connection.ensure_connection()
        barrier.wait(WAIT)
        made.append(ensure_partitions(monthly))

    with in_thread(ensure):
        ensure()
    assert sum(made) == 2
    assert months()[-1] == str(month(3))


@pytest.mark.skipif(connection.vendor != "postgresql", reason="elsewhere the whole table is locked")
def test_on_postgresql_other_months_go_on_while_the_rows_are_counted(monthly, monkeypatch):
    add(-5)

    def record(using, spec, partition):
        with in_thread(lambda: (add(0, name=partition.label), Monthly.objects.count())):
            pass

    monkeypatch.setattr("tests.config.partitions.models.record", record)
    (plan,) = rotate(specs=[monthly])
    assert outcomes(plan)[str(month(-5))].done
    assert Monthly.objects.filter(month=month(0), name=str(month(-5))).exists()


@pytest.mark.skipif(connection.vendor != "postgresql", reason="elsewhere ADD PARTITION waits for writers")
def test_on_postgresql_partitions_are_made_beside_open_readers_and_writers(monthly):
    remove(month(3))
    written, made = threading.Event(), threading.Event()

    def write():
        with transaction.atomic():
            add(0)
            Monthly.objects.count()
            written.set()
            assert made.wait(WAIT)

    with in_thread(write):
        assert written.wait(WAIT)
        try:
            assert ensure_partitions(monthly) == 1
        finally:
            made.set()


@pytest.mark.skipif(connection.vendor != "mysql", reason="only there a session setting is changed")
def test_on_mysql_the_session_is_left_as_it_was(monthly):
    add(-5)
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION lock_wait_timeout = 77, wait_timeout = 777")
        rotate(specs=[monthly])
        cursor.execute("SELECT @@SESSION.lock_wait_timeout, @@SESSION.wait_timeout")
        assert cursor.fetchone() == (77, 777)
    add(0)  # nothing is locked any more
    with in_thread(lambda: add(1)):
        pass


@pytest.mark.skipif(connection.vendor != "mysql", reason="elsewhere a drop is a transaction like others")
def test_on_mysql_a_rotation_that_falls_asleep_under_its_lock_is_ended(monthly, settings):
    settings.DATABASE_IDLE_TRANSACTION_SECONDS = 1
    driver = driver_for(monthly, "default")
    with pytest.raises(DatabaseError), driver._impatient() as cursor:
        cursor.execute(f"LOCK TABLES {driver._locked()}")
        with in_thread(lambda: add(0)):
            pass  # it waited until the server had ended our session
        cursor.execute("SELECT 1")
    connection.close()
    assert Monthly.objects.count() == 1


def test_a_drop_of_what_another_run_dropped_is_no_failure(monthly):
    add(-5)
    plan = plan_for(monthly)
    rotate(specs=[monthly])
    again = apply(plan)
    assert again.failures == []
    assert Dropped.objects.aggregate(total=Sum("number"))["total"] == 1
    if connection.vendor != "sqlite":
        assert "gone already" in outcomes(again)[str(month(-5))].reason
    assert living_keys(monthly)
    assert connections["default"].is_usable()
