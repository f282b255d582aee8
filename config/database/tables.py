"""Whether `migrate` has made what the models need: asked before a worker begins, by `doctor` and by /readyz."""

from __future__ import annotations

from pathlib import Path

from django.apps import apps
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from config.database.retry import needs_migrate


def require_tables() -> None:
    """Raise the database's own error if a table or a column of the project's models is missing.

    A worker that waits, for the broker or for work, would not notice. Every other trouble is left to the worker,
    which waits for a database that is away.
    """
    try:
        with connection.cursor() as cursor:
            for sql in _empty_selects():
                cursor.execute(sql)
    except (DatabaseError, InterfaceError) as error:
        if needs_migrate(error):
            raise


def _empty_selects() -> list[str]:
    quote = connection.ops.quote_name
    ours = [app for app in apps.get_app_configs() if Path(app.path).parent == settings.BASE_DIR]
    return [
        f"SELECT {', '.join(quote(str(field.column)) for field in model._meta.local_concrete_fields)} "  # noqa: S608
        f"FROM {quote(model._meta.db_table)} WHERE 1 = 0"
        for app in ours
        for model in app.get_models()
        if model.__module__.startswith(f"{app.name}.")
    ]


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
