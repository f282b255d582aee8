"""What `migrate` says of the locks that its steps take."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection, models
from django.db.migrations import AddField, AddIndex, Migration
from django.db.migrations.loader import MigrationLoader

from config.database import tables
from config.database.tables import ALL, WRITES, lock_of

INDEX = 'CREATE INDEX "deadletter_trace" ON "outbox_deadletter" ("trace_id") WHERE "trace_id" IS NOT NULL'


@pytest.mark.parametrize(
    ("statement", "postgresql", "mysql"),
    [
        (INDEX, f"{WRITES} until the index is built", "nobody waits for long, but the index is built row by row"),
        ("ALTER TABLE `t` DROP INDEX `i`, ADD COLUMN f tinyint GENERATED ALWAYS AS (1) STORED INVISIBLE, ADD INDEX `i` (`f`)",
         None, f"{WRITES} while the table is written anew"),
        ('ALTER TABLE "t" ADD COLUMN "c" varchar(32) NULL', "", ""),
        ('ALTER TABLE "t" ALTER COLUMN "c" SET NOT NULL', f"{ALL} until each row is checked", ""),
        ('ALTER TABLE "t" ALTER COLUMN "c" TYPE bigint', f"{ALL} while the table may be written anew", None),
        ("ALTER TABLE `t` MODIFY `c` bigint NOT NULL", None, f"{WRITES} while the table may be written anew"),
        ('ALTER TABLE "t" ADD CONSTRAINT "k" CHECK ("c" > 0)', f"{ALL} until each row is checked",
         f"{WRITES} while the table is written anew"),
        ('ALTER TABLE "t" ADD CONSTRAINT "k" UNIQUE ("c")', f"{ALL} until the index is built",
         "nobody waits for long, but the index is built row by row"),
        ('ALTER TABLE "t" DROP COLUMN "c" CASCADE', "", ""),
        ('UPDATE "t" SET "c" = 1', "its rows wait until all of them are changed", "its rows wait until all of them are changed"),
        ("-- THIS OPERATION CANNOT BE WRITTEN AS SQL", "", ""),
    ],
)  # fmt: skip
def test_who_waits_for_a_statement(statement, postgresql, mysql):
    for vendor, words in (("postgresql", postgresql), ("mysql", mysql)):
        if words is not None:
            assert lock_of(statement, vendor)[1] == words
    assert lock_of(INDEX, "postgresql")[0] == "outbox_deadletter"


@pytest.mark.django_db
def test_migrate_names_the_big_tables_and_who_waits(monkeypatch):
    """A later migration of an app of ours, of which nothing is done."""
    step = Migration("9999_step", "outbox")
    step.dependencies = [MigrationLoader(connection).graph.leaf_nodes("outbox")[0]]
    step.operations = [
        AddField("deadletter", "colour", models.CharField(max_length=9, null=True)),
        AddIndex("deadletter", models.Index(fields=["colour"], name="deadletter_colour")),
    ]
    load = MigrationLoader.load_disk
    monkeypatch.setattr(
        MigrationLoader,
        "load_disk",
        lambda self: (load(self), self.disk_migrations.update({("outbox", step.name): step})),
    )
    said = StringIO()
    call_command("migrate", plan=True, stdout=said, no_color=True)
    assert "Add field colour to deadletter" in said.getvalue()
    assert "Steps on big tables" not in said.getvalue()
    monkeypatch.setattr(tables, "BIG", 0)
    call_command("migrate", plan=True, stdout=said, no_color=True)
    lines = [line for line in said.getvalue().splitlines() if "outbox_deadletter, about" in line]
    if connection.vendor == "sqlite":
        assert lines == []
    else:
        (line,) = lines  # the column takes a moment
        assert line.startswith("  outbox.9999_step: outbox_deadletter, about ")
        assert line.endswith(lock_of(INDEX, connection.vendor)[1])
