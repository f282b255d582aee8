"""What becomes of messages when their day leaves the outbox: counted, archived, set aside, never while unfinished."""

from __future__ import annotations

import gzip
import json
import os
from datetime import UTC, datetime, time, timedelta
from uuid import UUID

import pytest
from django.db import connection

from config.fields import smallest_uuid7
from config.partitions import ensure_partitions, rotate, rotation
from config.partitions.drivers import MySQL
from config.partitions.rotation import driver_for
from outbox.bookkeeping.counters import dropped_rows
from outbox.messages import retention
from outbox.models import OutboxMessage
from outbox.partitioned import MESSAGES

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def day(monkeypatch):
    """The oldest day there is; rotation believes that exactly this one has outlived its retention."""
    oldest = driver_for(MESSAGES, "default").existing()[0]
    then = datetime.combine(oldest.upper + timedelta(days=30), time(1), UTC)
    monkeypatch.setattr(rotation, "database_now", lambda using: then)
    yield datetime.combine(oldest.upper, time(), UTC) - timedelta(hours=1)
    monkeypatch.undo()
    OutboxMessage.objects.all().delete()
    ensure_partitions(MESSAGES)


@pytest.fixture
def write(day):
    """One message of that day in each of the given states."""

    def run(*states: str) -> None:
        first = smallest_uuid7(int(day.timestamp() * 1000)).int
        for number, state in enumerate(states):
            OutboxMessage.objects.create(
                id=UUID(int=first + number), channel="memory", event_type="e", aggregate=f"a:{number}",
                payload='{"n": "ü"}', state=state, available_at=day, expires_at=day, created_at=day,
            )  # fmt: skip

    return run


def left() -> int:
    return OutboxMessage.objects.count()


def test_a_finished_day_goes_and_is_counted(write):
    write("sent", "sent", "cancelled")
    (plan,) = rotate(specs=[MESSAGES])
    assert plan.failures == []
    assert left() == 0
    assert dropped_rows("outbox", MESSAGES) == 3


@pytest.mark.parametrize("state", ["pending", "processing", "uncertain"])
def test_a_day_with_something_unfinished_stays(write, state):
    write("sent", state)
    (plan,) = rotate(specs=[MESSAGES])
    assert left() == 2
    assert "1 unfinished" in {step.reason for step in plan.only("keep")}


@pytest.mark.parametrize("state", ["pending", "processing", "uncertain"])
def test_a_message_that_came_back_after_the_plan_keeps_its_day(write, settings, tmp_path, state):
    settings.OUTBOX_ARCHIVE = str(tmp_path)
    write("sent", "dead_lettered")
    plan = rotation.plan_for(MESSAGES)
    OutboxMessage.objects.filter(state="dead_lettered").update(state=state)
    rotation.apply(plan)
    assert left() == 2
    assert not list(tmp_path.iterdir())


def archived(directory) -> list[dict]:
    (file,) = directory.iterdir()
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_a_directory_gets_every_message_as_a_line(write, settings, tmp_path, monkeypatch):
    monkeypatch.setattr(retention, "CHUNK", 2)
    settings.OUTBOX_ARCHIVE = str(tmp_path / "new")
    states = ["sent", "dead_lettered", "expired", "cancelled", "sent"]
    write(*states)
    rotate(specs=[MESSAGES])
    rows = archived(tmp_path / "new")
    assert [row["state"] for row in rows] == states
    assert rows[0]["payload"] == '{"n": "ü"}'
    assert left() == 0


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "killed"])
def test_a_file_has_its_name_only_when_it_is_complete(write, settings, tmp_path, monkeypatch, fault):
    settings.OUTBOX_ARCHIVE = str(tmp_path)
    write("sent", "sent", "sent")
    answers = iter(["first", "second"])

    def fail_at_the_third(row, **_):
        if line := next(answers, None):
            return line
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(retention.json, "dumps", fail_at_the_third)
        try:
            rotate(specs=[MESSAGES])
        except KeyboardInterrupt:
            pass
    assert left() == 3
    assert not list(tmp_path.glob("*.gz"))
    rotate(specs=[MESSAGES])
    assert len(archived(tmp_path)) == 3


def test_all_of_a_file_is_on_the_disk_before_it_has_its_name(write, settings, tmp_path, monkeypatch):
    """The rows go right after: what only a cache holds is lost with the power."""
    settings.OUTBOX_ARCHIVE = str(tmp_path)
    write("sent", "sent")
    on_disk: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: on_disk.append(os.fstat(file).st_size))
    monkeypatch.setattr(os, "replace", lambda part, target: on_disk.append(part.stat().st_size) or part.rename(target))
    rotate(specs=[MESSAGES])
    synced, named = on_disk
    assert synced == named > 0


def test_nobody_else_can_read_the_archive(write, settings, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "no space left")

    settings.OUTBOX_ARCHIVE = str(tmp_path)
    write("sent")
    with monkeypatch.context() as patched:
        patched.setattr(retention.os, "replace", full)
        rotate(specs=[MESSAGES])
    (part,) = tmp_path.iterdir()
    assert part.stat().st_mode & 0o777 == 0o600
    part.chmod(0o644)  # as an older version would have left it
    rotate(specs=[MESSAGES])
    assert [file.stat().st_mode & 0o777 for file in tmp_path.iterdir()] == [0o600]
    assert not part.exists()


def test_a_directory_that_cannot_be_written_keeps_the_day(write, settings, tmp_path):
    (tmp_path / "file").write_text("in the way")
    settings.OUTBOX_ARCHIVE = str(tmp_path / "file")
    write("sent")
    (plan,) = rotate(specs=[MESSAGES])
    assert left() == 1
    assert any("OUTBOX_ARCHIVE=" in step.reason for step in plan.only("keep"))


@pytest.fixture
def detach(settings):
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no partitions to detach")
    before = set(connection.introspection.table_names())
    settings.OUTBOX_ARCHIVE = "detach"

    def aside() -> list[str]:
        found = set(connection.introspection.table_names())
        parent = OutboxMessage._meta.db_table
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute("SELECT relname FROM pg_class WHERE relispartition")
                found -= {name for (name,) in cursor.fetchall()}
        return sorted(name for name in found if name.startswith(f"{parent}_p"))

    yield aside
    for name in aside():
        if name not in before or connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(f"DROP TABLE {name}")


def rows_of(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {table}")
        return int(cursor.fetchone()[0])


def add_a_column_in_place() -> None:
    table = OutboxMessage._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} ADD COLUMN passing int")
        cursor.execute(f"ALTER TABLE {table} DROP COLUMN passing")


def test_a_detached_day_becomes_a_table(write, detach):
    write("sent", "expired")
    (plan,) = rotate(specs=[MESSAGES])
    assert plan.failures == []
    assert left() == 0
    assert sum(rows_of(table) for table in detach()) == 2
    assert dropped_rows("outbox", MESSAGES) == 2


@pytest.fixture
def died(write, detach, monkeypatch, request):
    """A run that was killed between setting the rows aside and taking the partition away."""
    if connection.vendor != "mysql" or connection.mysql_is_mariadb:
        pytest.skip("elsewhere the detach is one statement or one transaction")
    if request.param == "moved":
        add_a_column_in_place()
    write("sent", "expired")
    finished = MySQL._exchange

    def die(*arguments):
        finished(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(MySQL, "_exchange", die)
    with pytest.raises(KeyboardInterrupt):
        rotate(specs=[MESSAGES])
    monkeypatch.setattr(MySQL, "_exchange", finished)


either_way = pytest.mark.parametrize("died", ["exchanged", "moved"], indirect=True)


@either_way
def test_a_detach_that_died_half_way_is_finished_by_the_next_run(died, detach):
    assert left() == 0
    assert dropped_rows("outbox", MESSAGES) == 0  # the partition still stands
    rotate(specs=[MESSAGES])
    assert dropped_rows("outbox", MESSAGES) == 2
    assert sum(rows_of(table) for table in detach()) == 2


@either_way
def test_rows_that_came_after_a_detach_that_died_are_kept(died, write, detach):
    write("sent")
    (plan,) = rotate(specs=[MESSAGES])
    assert "rename that table" in "".join(step.reason for step in plan.only("keep"))
    assert left() == 1
    assert sum(rows_of(table) for table in detach()) == 2


def test_a_table_that_once_got_a_column_in_place_is_detached_by_moving_its_rows(write, detach):
    add_a_column_in_place()
    write("sent", "expired")
    (plan,) = rotate(specs=[MESSAGES])
    assert plan.failures == []
    assert left() == 0
    assert sum(rows_of(name) for name in detach()) == 2
    assert dropped_rows("outbox", MESSAGES) == 2
