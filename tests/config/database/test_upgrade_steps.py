"""What has to stop before a migration: each that takes something away says so, `migrate` prints it, deploy.md lists it."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection, migrations
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from config.database.tables import stopped_first
from tests.tree import ROOT, read

TAKEN_AWAY = (
    migrations.RemoveField, migrations.RenameField, migrations.DeleteModel, migrations.RenameModel,
    migrations.AlterModelTable,
    migrations.RemoveConstraint,  # on PostgreSQL an upsert needs the constraint that it names
)  # fmt: skip
OURS = ("buffer", "notifications", "outbox", "throttler")


def steps() -> dict[str, migrations.Migration]:
    """The migrations of a database that has the first of each app."""
    migrations_on_disk = MigrationLoader(None).disk_migrations
    return {f"{app}.{name}": migration for (app, name), migration in migrations_on_disk.items() if app in OURS}


@pytest.mark.parametrize("name", sorted(steps()))
def test_a_step_that_takes_something_away_names_who_stops(name):
    migration = steps()[name]
    if any(isinstance(operation, TAKEN_AWAY) for operation in migration.operations):
        assert migration.stops
        assert re.fullmatch(r"|[a-z]+ \d{4}", migration.back)
    else:
        assert not hasattr(migration, "stops")


def test_the_document_lists_these_steps():
    rows = re.findall(
        r"^\| `(\w+\.\d{4}_\w+)` \| ([\w, ]+) \| (.+) \|$", read(ROOT / "docs" / "deploy.md"), re.MULTILINE
    )
    listed = {name: (stops, back) for name, stops, back in rows}
    assert listed == {
        name: (", ".join(step.stops), f"`migrate {step.back}`" if step.back else "the backup")
        for name, step in steps().items()
        if hasattr(step, "stops")
    }


@pytest.mark.django_db
def test_migrate_says_it_before_it_begins(monkeypatch):
    assert list(stopped_first(connection)) == []
    for app, name in (
        ("outbox", "0013_sign_in"),
        ("outbox", "0012_incident"),
        ("throttler", "0002_unread_columns"),
        ("throttler", "0003_lane_newest"),
    ):
        MigrationRecorder(connection).record_unapplied(app, name)
    printed = StringIO()
    call_command("migrate", plan=True, stdout=printed, no_color=True)
    before, _, planned = printed.getvalue().partition("Planned operations:")
    assert before.splitlines() == [
        "Steps that the version before does not survive:",
        "  outbox.0012_incident: stop web, notify_people of the version before first; back again by `migrate outbox 0011`",
        "  throttler.0002_unread_columns: stop run_throttler of the version before first; back again by `migrate throttler 0001`",
    ]
    assert "throttler.0003_lane_newest" in planned


@pytest.mark.django_db
def test_a_new_database_has_no_version_before(monkeypatch):
    for app, name in MigrationRecorder(connection).applied_migrations():
        MigrationRecorder(connection).record_unapplied(app, name)
    assert list(stopped_first(connection)) == []
