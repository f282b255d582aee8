"""Empties the tables between tests, and leaves what `migrate` itself fills as long as no test has changed it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management.commands import flush
from django.db import connection

from outbox.audit_log.models import OfferedRight

# What receivers of post_migrate fill, those that refer to others first.
FILLED = (OfferedRight, Group.permissions.through, Group, Permission, ContentType)
PARTITIONS = {
    "postgresql": "SELECT inhrelid::text FROM pg_inherits ORDER BY 1",
    "mysql": "SELECT table_name, partition_name FROM information_schema.partitions"
    " WHERE table_schema = DATABASE() AND partition_name IS NOT NULL ORDER BY 1, 2",
}


@contextmanager
def emptied_by_delete() -> Iterator[None]:
    """Tables are emptied by DELETE: TRUNCATE makes new files for every partition and index, which takes seconds a
    test, and the tables hold a handful of rows. `post_migrate`, nine tenths of the rest, is sent where it would change
    something."""
    operations = type(connection.ops)
    truncate, emit = operations.sql_flush, flush.emit_post_migrate_signal
    kept = {model._meta.db_table for model in FILLED}
    switch = "SET FOREIGN_KEY_CHECKS = %d" if connection.vendor == "mysql" else ""
    filled: list[Any] = []

    def delete(self: Any, style: Any, tables: list[str], **options: Any) -> list[str]:
        if options.get("reset_sequences"):
            return truncate(self, style, tables, **options)
        found = [f"DELETE FROM {self.quote_name(table)}" for table in tables if table not in kept]
        return [switch % 0, *found, switch % 1] if switch else found

    def emit_where_needed(*args: Any, **options: Any) -> None:
        if filled == what_is_filled():
            return
        for model in FILLED:
            model._base_manager.all()._raw_delete(connection.alias)
        emit(*args, **options)
        filled[:] = what_is_filled()

    operations.sql_flush, flush.emit_post_migrate_signal = delete, emit_where_needed  # type: ignore[method-assign]
    yield
    operations.sql_flush, flush.emit_post_migrate_signal = truncate, emit  # type: ignore[method-assign]


def what_is_filled() -> list[Any]:
    """Content types, rights and roles, and the partitions that there are."""
    rows = [list(model._base_manager.order_by("pk").values_list()) for model in FILLED]
    with connection.cursor() as cursor:
        if query := PARTITIONS.get(connection.vendor):
            cursor.execute(query)
            rows.append(cursor.fetchall())
    return rows
