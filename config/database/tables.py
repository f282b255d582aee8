"""Whether the server writes and has the tables that `migrate` makes, and who waits while its steps lock them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from django.apps import apps
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from config.database.retry import drop_lost_sessions, needs_migrate


# -- Whether `migrate` has made what the models need ---------------------------------------------------------
# Asked before a worker begins, by `doctor` and by /readyz.
def require_tables(using: str = DEFAULT_DB_ALIAS) -> None:
    """Raise the database's own error if a table or a column of the project's models is missing.

    A worker that waits, for the broker or for work, would not notice. Every other trouble is left to the worker,
    which waits for a database that is away.
    """
    try:
        with connections[using].cursor() as cursor:
            for sql in _empty_selects():
                cursor.execute(sql)
    except (DatabaseError, InterfaceError) as error:
        if needs_migrate(error):
            raise
        drop_lost_sessions()  # who asks next hears why, not that this session is closed


def _empty_selects() -> list[str]:
    quote = connection.ops.quote_name
    labels = {"buffer", "outbox", "throttler", "notifications", *settings.ADDED_APPS}
    return [
        f"SELECT {', '.join(quote(str(field.column)) for field in model._meta.local_concrete_fields)} "  # noqa: S608
        f"FROM {quote(model._meta.db_table)} WHERE 1 = 0"
        for app in apps.get_app_configs()
        if app.label in labels
        for model in app.get_models()
        if model.__module__.startswith(f"{app.name}.")
    ]


def missing_apps() -> str:
    """A sentence on the apps of which there are tables and that are installed no more; empty if there is none."""
    labels = [app.label for app in apps.get_app_configs()]
    known = MigrationRecorder.Migration.objects.using(DEFAULT_DB_ALIAS).exclude(app__in=labels)
    gone = ", ".join(sorted(set(known.values_list("app", flat=True))))
    return f"The database has tables of {gone}: SPILLWAY_APPS does not name what they belong to." if gone else ""


def missing_migrations() -> str:
    """What `migrate` has still to do, in words; empty if nothing."""
    if unfinished := unfinished_squashes(connection):
        return "; ".join(unfinished)
    executor = MigrationExecutor(connection)
    missing = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    return f"{missing} not applied: run migrate" if missing else ""


def unfinished_squashes(connection: BaseDatabaseWrapper) -> list[str]:
    """A sentence for each migration that replaces some that were applied, and some that were not and are gone.

    No code can bring such a database forward any more. Django would leave the whole migration out: where no other
    depends on it, `migrate` would have nothing to do and say so.
    """
    on_disk = MigrationLoader(None).disk_migrations
    applied = MigrationRecorder(connection).applied_migrations()
    sentences = []
    for (app, name), migration in on_disk.items():
        gone = [old for old in migration.replaces if old not in applied and old not in on_disk]
        if gone and any(old in applied for old in migration.replaces):
            first = ".".join(gone[0])
            sentences.append(
                f"{first} was never applied here, and is now part of {app}.{name}: run migrate with the last version "
                f"that has {first}, then with this one (docs/deploy.md, Upgrade)"
            )
    return sentences


# -- Whether the server writes -------------------------------------------------------------------------------
READ_ONLY_SQL = {"postgresql": "SHOW transaction_read_only", "mysql": "SELECT @@GLOBAL.read_only"}
ONLY_READS = "the server only reads, as a standby does that is not promoted"


def only_reads() -> bool:
    """Whether the server takes no write, as a standby before it is promoted."""
    with connection.cursor() as cursor:
        cursor.execute(READ_ONLY_SQL.get(connection.vendor, "SELECT 0"))
        return str(cursor.fetchone()[0]).lower() not in ("off", "0")


# -- What the steps of `migrate` lock ------------------------------------------------------------------------
# Which statements make others wait, on which big tables, and whether for reading, too.
BIG = 100_000  # rows; below, each step takes a moment
TABLE = r"""(?:ALTER TABLE|INDEX \S+ ON) ["`]?(\w+)"""
WRITES, ALL = "writes wait", "reads and writes wait"
# By the first that matches. What is not here takes a moment on each of them: a column that is NULL or has a default of the
# database, a column or an index that goes. Sources: PostgreSQL 15, ALTER TABLE and CREATE INDEX; MySQL 8.4, online DDL
# operations; MariaDB 10.11, InnoDB online DDL.
POSTGRESQL = (
    (r"^CREATE (UNIQUE )?INDEX CONCURRENTLY", ""),
    (r"^CREATE (UNIQUE )?INDEX", f"{WRITES} until the index is built"),
    (r"ADD CONSTRAINT .* FOREIGN KEY", f"{WRITES} until each row is checked"),
    (r"ADD CONSTRAINT .* (UNIQUE|PRIMARY KEY)", f"{ALL} until the index is built"),
    (r"ADD CONSTRAINT .* CHECK|SET NOT NULL", f"{ALL} until each row is checked"),
    (r"ALTER COLUMN .* TYPE|ADD COLUMN .* (GENERATED|STORED)", f"{ALL} while the table may be written anew"),
    (r"^UPDATE ", "its rows wait until all of them are changed"),
)
MYSQL = (
    (r"GENERATED ALWAYS .* STORED", f"{WRITES} while the table is written anew"),
    (r"ADD CONSTRAINT .* (CHECK|FOREIGN KEY)", f"{WRITES} while the table is written anew"),
    (r"MODIFY|CHANGE COLUMN", f"{WRITES} while the table may be written anew"),
    (r"INDEX|ADD CONSTRAINT .* UNIQUE", "nobody waits for long, but the index is built row by row"),
    (r"^UPDATE ", "its rows wait until all of them are changed"),
)
RULES = {"postgresql": POSTGRESQL, "mysql": MYSQL}
ROWS = {
    "postgresql": "SELECT coalesce(sum(greatest(c.reltuples, 0)), 0) FROM pg_partition_tree(to_regclass(%s)) t "
    "JOIN pg_class c ON c.oid = t.relid WHERE t.isleaf",
    "mysql": "SELECT coalesce(sum(table_rows), 0) FROM information_schema.tables "
    "WHERE table_schema = DATABASE() AND table_name = %s",
}


def warnings(connection: BaseDatabaseWrapper) -> Iterator[str]:
    """A sentence for each step that `migrate` has before it and that makes others wait for a table of 100 000 rows or more."""
    if connection.vendor not in RULES:
        return  # one file, one writer: every step locks all of it
    executor = MigrationExecutor(connection)
    for migration, backwards in executor.migration_plan(executor.loader.graph.leaf_nodes()):
        try:
            statements = executor.loader.collect_sql([(migration, backwards)])
        except DatabaseError:
            continue  # it asks for tables that an earlier one of the plan makes: they are empty
        for statement in statements:
            table, wait = lock_of(statement, connection.vendor)
            if wait and (rows := _estimate(connection, table)) >= BIG:
                yield f"{migration}: {table}, about {rows:,} rows: {wait}"


def stopped_first(connection: BaseDatabaseWrapper) -> Iterator[str]:
    """A sentence for each step before `migrate` on which the code of before cannot run, and how one goes back behind it.

    Such a migration says so: `stops`, the commands of the version before, and `back`, what `migrate` is given (empty:
    only a backup leads back). Every other one leaves the code of before at work.
    """
    executor = MigrationExecutor(connection)
    if not executor.loader.applied_migrations:
        return  # a new database: nothing runs
    for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes()):
        if stops := getattr(migration, "stops", ()):
            before = getattr(migration, "back", "")
            back = f"`migrate {before}`" if before else "the backup"
            yield f"{migration}: stop {', '.join(stops)} of the version before first; back again by {back}"


def lock_of(statement: str, vendor: str) -> tuple[str, str]:
    """The table of a statement, and who waits for how long; nothing where that is a moment."""
    text = " ".join(statement.split())
    table = re.search(r"""^UPDATE ["`]?(\w+)|""" + TABLE, text)
    if table is None:
        return "", ""
    wait = next((words for pattern, words in RULES[vendor] if re.search(pattern, text)), "")
    return table[1] or table[2], wait


def _estimate(connection: BaseDatabaseWrapper, table: str) -> int:
    """Rows of all its partitions, as the server's statistics have them."""
    with connection.cursor() as cursor:
        cursor.execute(ROWS[connection.vendor], [table])
        return int(cursor.fetchone()[0])
