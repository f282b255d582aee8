"""Rotation on a real table: what is made, dropped and recorded, and that a crash loses no count."""

from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import Sum

from config.database.clock import database_now
from config.fields import smallest_uuid7
from config.partitions import (
    Keep,
    PartitionError,
    apply,
    ensure_after_migrate,
    ensure_partitions,
    living_keys,
    plan_for,
    rotate,
)
from tests.config.partitions.conftest import add, month, months
from tests.config.partitions.models import DAILY, LETTERS, MONTHLY, Dropped, Letter, Monthly, record

PARTITIONS_EXIST = connection.vendor != "sqlite"
real = pytest.mark.skipif(not PARTITIONS_EXIST, reason="SQLite has no partitions")

TAKE_ALL = "ALTER TABLE test_monthly ADD PARTITION (PARTITION rest VALUES LESS THAN MAXVALUE)"


def outcomes(plan):
    return {step.partition.label: step for step in plan.steps}


def conserved():
    """Rows in the table plus rows recorded as dropped."""
    gone = Dropped.objects.exclude(key__in=living_keys(MONTHLY)).aggregate(total=Sum("number"))["total"]
    return Monthly.objects.count() + (gone or 0)


@contextmanager
def crash_at(word, nth=1):
    """The process dies as it sends the nth statement that begins with that word."""
    seen = []

    def wrapper(execute, sql, params, many, context):
        seen.extend([sql] * (word in sql))
        if len(seen) == nth:
            raise KeyboardInterrupt
        return execute(sql, params, many, context)

    with connection.execute_wrapper(wrapper), pytest.raises(KeyboardInterrupt):
        yield


def test_old_and_finished_goes_with_its_rows_and_the_rest_stays(monthly):
    for count in (-5, -4, -3, 0, 3):
        add(count)
    (plan,) = rotate(specs=[monthly])
    assert plan.failures == []
    assert outcomes(plan)[str(month(-5))].done
    assert sorted(Monthly.objects.values_list("month", flat=True)) == [month(-3), month(0), month(3)]
    assert months()[0] == str(month(-3))
    assert conserved() == 5


def test_an_unfinished_row_keeps_its_partition_and_no_other(monthly):
    add(-5, status="pending")
    for count in (-6, -4):
        add(count)
    (plan,) = rotate(specs=[monthly])
    assert outcomes(plan)[str(month(-5))].reason == "1 unfinished"
    assert list(Monthly.objects.values_list("month", flat=True)) == [month(-5)]
    assert conserved() == 3


def test_a_row_that_turns_up_after_the_plan_is_seen_by_the_guard(monthly):
    add(-5)
    plan = plan_for(monthly)
    add(-5, name="late", status="pending")
    step = outcomes(apply(plan))[str(month(-5))]
    assert (step.action, step.reason, step.done) == ("keep", "1 unfinished", False)
    assert Monthly.objects.count() == conserved() == 2


def test_a_dry_run_changes_nothing(monthly):
    add(-5)
    before = months()
    (plan,) = rotate(dry_run=True, specs=[monthly])
    assert plan.only("drop")
    assert not any(step.done for step in plan.steps)
    assert months() == before
    assert Monthly.objects.count() == 1
    assert not Dropped.objects.exists()


@real
def test_what_is_missing_ahead_is_made_once(schema):
    schema.create("Monthly")
    remove(month(2), month(3))
    assert ensure_partitions(MONTHLY) == 2
    assert ensure_partitions(MONTHLY) == 0
    assert months()[-1] == str(month(3))
    add(3)


def remove(*labels):
    for label in labels:
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute(f"DROP TABLE test_monthly_p{label}")
            else:
                cursor.execute(f"ALTER TABLE test_monthly DROP PARTITION p{label}")


@real
def test_indexes_reach_partitions_made_later(schema):
    schema.create("Monthly")
    remove(month(3))
    ensure_partitions(MONTHLY)
    for name in ("a", "b"):
        add(3, name=name)
    assert Monthly.objects.filter(month=month(3)).count() == 2
    with pytest.raises(Exception, match=r"(?i)duplicate"):
        add(3, name="a")


@real
def test_after_years_of_absence_the_window_is_made_and_the_old_dropped(monthly, settings):
    settings.TEST_KEEP_MONTHS = 1
    remove(*[month(count) for count in range(-2, 4)])
    add(-3) if connection.vendor == "postgresql" else add(-4)
    (plan,) = rotate(specs=[monthly])
    assert plan.failures == []
    assert plan.days_left > 80
    assert months()[-1] == str(month(3))
    assert Monthly.objects.count() == 0
    for count in range(-1, 4):
        add(count)


def test_post_migrate_makes_what_is_missing_of_that_app(schema, settings):
    settings.PARTITIONS = ["tests.config.partitions.models.MONTHLY", "tests.config.partitions.models.LETTERS"]
    sender = type("Sender", (), {"label": "config"})
    ensure_after_migrate(sender, using="default")  # the tables are yet to come
    schema.create("Monthly")
    if PARTITIONS_EXIST:
        remove(month(3))
    ensure_after_migrate(type("Sender", (), {"label": "other"}), using="default")
    assert (str(month(3)) in months()) != PARTITIONS_EXIST
    ensure_after_migrate(sender, using="default")
    assert str(month(3)) in months()


def test_the_hook_may_veto(monthly, monkeypatch):
    def veto(using, spec, partition):
        raise Keep("a lane still needs it")

    monkeypatch.setattr("tests.config.partitions.models.record", veto)
    add(-5)
    (plan,) = rotate(specs=[monthly])
    assert outcomes(plan)[str(month(-5))].reason == "a lane still needs it"
    assert Monthly.objects.count() == 1


def test_a_bug_in_the_hook_is_one_line_and_drops_nothing(monthly, monkeypatch):
    monkeypatch.setattr("tests.config.partitions.models.record", lambda using, spec, partition: 1 / 0)
    add(-5)
    (plan,) = rotate(specs=[monthly])
    failure = next(line for line in plan.failures if str(month(-5)) in line)
    assert failure.endswith("tests.config.partitions.models.record: ZeroDivisionError: division by zero")
    assert Monthly.objects.count() == 1
    add(0)


def test_a_crash_between_record_and_drop_counts_nothing_twice(monthly):
    for number in range(3):
        add(-5, name=str(number))
    word = {"postgresql": "DROP TABLE", "mysql": "DROP PARTITION", "sqlite": 'DELETE FROM "test_monthly"'}
    with crash_at(word[connection.vendor], nth=1 if connection.vendor == "sqlite" else 8):
        rotate(specs=[monthly])
    connection.close()
    assert Monthly.objects.count() == 3
    assert conserved() == 3
    add(-5, name="late")
    rotate(specs=[monthly])
    assert Monthly.objects.count() == 0
    assert conserved() == 4


def test_a_failure_of_one_partition_or_table_stops_no_other(monthly, schema, settings, monkeypatch):
    def fail_once(using, spec, partition):
        if partition.label.startswith(str(month(-5))):
            raise ZeroDivisionError
        record(using, spec, partition)

    settings.TEST_KEEP_DAYS = 100
    schema.create("Letter")
    settings.TEST_KEEP_DAYS = 3
    monkeypatch.setattr("tests.config.partitions.models.record", fail_once)
    add(-5)
    add(-4)
    Letter.objects.create(id=smallest_uuid7(int((database_now() - timedelta(days=60)).timestamp() * 1000)))
    failed, fine = rotate(specs=[monthly, LETTERS])
    assert len(failed.failures) == 1
    assert list(Monthly.objects.values_list("month", flat=True)) == [month(-5)]
    assert fine.failures == []
    assert not Letter.objects.exists()


def test_partitions_of_another_kind_are_dropped_too(schema, settings):
    settings.TEST_KEEP_DAYS = 100
    schema.create("Letter")
    schema.create("Daily")
    settings.TEST_KEEP_DAYS = 3
    for spec in (LETTERS, DAILY):
        (plan,) = rotate(specs=[spec])
        assert plan.failures == []
        assert {step.action for step in plan_for(spec).steps} == {"keep"}
    assert len(months(DAILY)) == 7


@real
def test_a_month_that_comes_again_has_another_key(monthly, settings):
    add(-5)
    rotate(specs=[monthly])
    settings.TEST_KEEP_MONTHS = 12
    ensure_partitions(monthly)
    add(-5)
    add(-4)
    assert conserved() == 3
    settings.TEST_KEEP_MONTHS = 3
    rotate(specs=[monthly])
    assert conserved() == 3 if connection.vendor == "postgresql" else Monthly.objects.count() == 2


@real
def test_a_foreign_partition_is_kept_and_named(schema):
    schema.create("Monthly")
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("CREATE TABLE test_monthly_rest PARTITION OF test_monthly DEFAULT")
        else:
            cursor.execute(TAKE_ALL)
    (plan,) = rotate(specs=[MONTHLY])
    odd = [step for step in plan.steps if "rest" in step.partition.name]
    assert [(step.action, "unknown" in step.reason) for step in odd] == [("keep", True)]


@pytest.mark.skipif(connection.vendor != "mysql", reason="only here a last partition takes everything")
def test_what_cannot_be_made_is_one_line(schema):
    schema.create("Monthly")
    remove(month(3))
    with connection.cursor() as cursor:
        cursor.execute(TAKE_ALL)
    (plan,) = rotate(specs=[MONTHLY])
    assert len(plan.failures) == 1
    assert "\n" not in plan.failures[0]
    with pytest.raises(PartitionError, match=f"p{month(3)}"):
        ensure_partitions(MONTHLY)


def test_the_command_prints_the_plan_and_fails_in_one_line(monthly, settings, capsys):
    settings.PARTITIONS = ["tests.config.partitions.models.MONTHLY"]
    add(-5)
    call_command("rotate_partitions", "--dry-run")
    assert "nothing unfinished" in capsys.readouterr().out
    assert Monthly.objects.count() == 1
    call_command("rotate_partitions", "--no-drop")
    assert "--no-drop" in capsys.readouterr().out
    assert Monthly.objects.count() == 1
    call_command("rotate_partitions")
    assert "dropped" in capsys.readouterr().out
    assert Monthly.objects.count() == 0
    settings.PARTITIONS = ["tests.config.partitions.models.MONTHLY", "tests.config.partitions.models.LETTERS"]
    with pytest.raises(CommandError, match=r"test_letter: the table does not exist"):
        call_command("rotate_partitions")
    assert "test_monthly" in capsys.readouterr().out
