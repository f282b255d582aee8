"""Whether `migrate` has made what the models need, asked before a worker begins."""

from __future__ import annotations

from pathlib import Path

from django.apps import apps
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection

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
