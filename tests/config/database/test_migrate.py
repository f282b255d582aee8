"""`migrate` from every state that tables may be in: of an older version, between two, cut in the middle, without a key."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import DatabaseError, connection
from django.db.migrations import AlterField, Migration
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from config.database import checks
from config.database.mysql.schema import MigrationJournal
from config.database.tables import missing_migrations
from config.fields import IdentifierField
from config.probes import endpoints
from tests.databases import empty_database, json_of, run_with

WALK = ["-m", "tests.config.database.walk"]
SERVER = pytest.mark.skipif(connection.vendor != "mysql", reason="elsewhere DDL is undone with its migration")


@pytest.fixture
def walk(django_db_setup: None, django_db_blocker: Any, tmp_path: Any) -> Iterator[Callable[..., Any]]:
    """Goes through the history of an empty database; returns what it says."""
    with django_db_blocker.unblock(), ExitStack() as stack:

        def go(how: str, **settings: str) -> Any:
            url = stack.enter_context(empty_database(how, tmp_path))
            options = "&".join(f"{name}={value}" for name, value in settings.items())
            return json_of(run_with(f"{url}?{options}" if options else url, *WALK, how))

        yield go


def test_migrate_is_refused_in_no_state_and_a_cut_one_goes_on(walk):
    """From every earlier state, and from a cut in the middle of every migration, to the same tables."""
    stepped, cut = walk("steps"), walk("cuts")
    migrations = MigrationExecutor(connection).loader.graph.nodes
    assert stepped["went"] == len(migrations)
    assert cut["went"] > len(migrations) / 2
    assert cut["tables"] == stepped["tables"]


def test_behind_a_step_that_names_a_way_back_and_forward_again_beside_rows(walk):
    there_and_back, stepped = walk("back"), walk("steps")
    assert there_and_back["went"] >= 2
    assert there_and_back["tables"] == stepped["tables"]


@SERVER
def test_no_table_is_ever_without_a_primary_key(walk):
    """sql_require_primary_key is the default of many managed servers."""
    if connection.mysql_is_mariadb:  # type: ignore[attr-defined]
        pytest.skip("MariaDB knows no such switch")
    assert walk("steps", init_command="SET time_zone='%2B00:00',sql_require_primary_key=1")["went"]


def judged() -> set[str]:
    return {str(field) for field in checks.settled_fields(connection)}


@pytest.mark.django_db
def test_a_column_that_a_pending_migration_changes_is_not_judged(monkeypatch):
    everything = judged()
    later = Migration("0002_later", "outbox")
    later.dependencies = [("outbox", "0001_schema")]
    later.operations = [AlterField("failuregroup", "fingerprint", IdentifierField(max_length=40, unique=True))]
    load = MigrationLoader.load_disk

    def with_later(loader: MigrationLoader) -> None:
        load(loader)
        loader.disk_migrations["outbox", "0002_later"] = later

    monkeypatch.setattr(MigrationLoader, "load_disk", with_later)
    assert everything - judged() == {"outbox.FailureGroup.fingerprint"}


@pytest.mark.django_db
def test_what_is_not_there_yet_is_not_judged():
    everything = judged()
    MigrationRecorder(connection).migration_qs.filter(app="buffer").delete()
    assert everything - judged() == {name for name in everything if name.startswith("buffer.")}
    assert not checks.text_is_whole(None, databases=["default"])


@pytest.fixture
def applied(transactional_db: None) -> Iterator[Any]:
    """What the database has noted of the outbox's migrations; as it was in the end."""
    rows = MigrationRecorder(connection).migration_qs.filter(app="outbox")
    noted = list(rows)
    yield rows
    rows.delete()
    rows.bulk_create(noted)


def test_a_database_at_the_last_migration_of_before_has_nothing_to_apply(applied):
    applied.filter(name="0001_schema").delete()
    executor = MigrationExecutor(connection)
    assert not executor.migration_plan(executor.loader.graph.leaf_nodes())
    assert not checks.squashed_migrations_are_whole(None, databases=["default"])
    assert not missing_migrations()


def test_a_database_between_two_squashed_migrations_is_refused_and_doctor_says_what_to_run(applied, capsys):
    """Django itself would have nothing to apply, or no graph."""
    applied.filter(name__in=["0001_schema", "0016_sizes_of_items", "0017_refusals_alike"]).delete()
    with pytest.raises(SystemCheckError, match=r"E023. outbox\.0016_sizes_of_items was never"):
        call_command("migrate", skip_checks=False)
    with pytest.raises(SystemExit):
        call_command("doctor", json=True)
    findings = {finding["name"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert not findings["migrations"]["ok"]
    assert "run migrate with the last version that has outbox.0016_sizes_of_items" in findings["migrations"]["detail"]
    endpoints._missing.cache_clear()  # what another test was told within this minute
    assert endpoints.CHECKS["migrations"]().startswith("failed: outbox.0016_sizes_of_items")


@SERVER
@pytest.mark.django_db(transaction=True)
def test_a_table_that_somebody_else_made_stays_an_error(monkeypatch):
    """Only a statement to which the migration had come, and which nobody has refused, may be done already."""
    journal = MigrationJournal(connection)
    monkeypatch.setattr(connection, "journal", journal)
    make = "CREATE TABLE strangers (id int PRIMARY KEY)"
    try:
        with connection.cursor() as cursor:
            cursor.execute(make)
        for _ in range(2):
            journal.open("x.0001_first")
            with connection.schema_editor() as editor, pytest.raises(DatabaseError, match="exists"):
                editor.execute(make)
        journal.begin(make + " ")
        journal.open("x.0001_first")
        with connection.schema_editor() as editor:
            editor.execute(make)
        journal.close()
        journal.open("x.0001_first")
        assert not journal.begun
    finally:
        journal.remove()
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE strangers")
