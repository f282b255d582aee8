"""A column that refuses a text, as a character set does that has not all characters: by each database's own rule."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, models

NAME = "refuses_a_text"


@contextmanager
def refusing(model: type[models.Model], column: str, text: str) -> Iterator[None]:
    """Rows of `model` with `text` in `column` are refused as data. On MariaDB and MySQL DDL commits: use transactional tests."""
    table = model._meta.db_table
    rules = _by_triggers(table, column, text) if connection.vendor == "sqlite" else _by_check(table, column, text)
    with connection.cursor() as cursor:
        for make, _ in rules:
            cursor.execute(make)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            for _, drop in rules:
                cursor.execute(drop)


def _by_check(table: str, column: str, text: str) -> list[tuple[str, str]]:
    add = f"ALTER TABLE {table} ADD CONSTRAINT {NAME} CHECK ({column} NOT LIKE '%{text}%')"
    return [(add, f"ALTER TABLE {table} DROP CONSTRAINT {NAME}")]


def _by_triggers(table: str, column: str, text: str) -> list[tuple[str, str]]:
    when = f"WHEN NEW.{column} LIKE '%{text}%' BEGIN SELECT RAISE(ABORT, 'refused as data'); END"
    names = {kind: f"{NAME}_{kind}" for kind in ("insert", "update")}
    return [
        (f"CREATE TRIGGER {name} BEFORE {kind.upper()} ON {table} {when}", f"DROP TRIGGER {name}")
        for kind, name in names.items()
    ]
