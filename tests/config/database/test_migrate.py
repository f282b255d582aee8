"""`migrate` from every state that tables may be in: of an older version, cut in the middle, without a key for a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from config.database import checks
from config.database.mysql.schema import MigrationJournal
from tests.databases import empty_database, json_of, run_with
from tests.outbox.conftest import Tables

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


@SERVER
def test_no_table_is_ever_without_a_primary_key(walk):
    """sql_require_primary_key is the default of many managed servers."""
    if connection.mysql_is_mariadb:  # type: ignore[attr-defined]
        pytest.skip("MariaDB knows no such switch")
    assert walk("steps", init_command="SET time_zone='%2B00:00',sql_require_primary_key=1")["went"]


@pytest.mark.django_db(transaction=True)
def test_only_columns_that_no_migration_changes_any_more_are_judged():
    def judged() -> set[str]:
        return {str(field) for field in checks.settled_fields(connection)}

    everything = judged()
    assert "outbox.FailureGroup.fingerprint" in everything
    changed = {"outbox.FailureGroup.fingerprint", "outbox.BurialKey.topic_id", "outbox.ReplayItem.size"}
    tables = Tables()
    tables.as_of("0014_letters_by_correlation")
    try:
        assert everything - judged() >= changed
        assert "outbox.BurialKey.offset" in judged()
        assert not checks.text_is_whole(None, databases=["default"])
    finally:
        tables.migrate()


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
