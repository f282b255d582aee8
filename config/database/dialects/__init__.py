"""How each database unpacks JSON rows, upserts them, and says what changed: one class per vendor."""

from __future__ import annotations

from django.db.backends.base.base import BaseDatabaseWrapper

from config.database.dialects.base import BOUNDS, LONGEST_TEXT, Column, Dialect, Lookup, Update
from config.database.dialects.vendors import MariaDB, MySQL, PostgreSQL, SQLite

__all__ = [
    "BOUNDS",
    "LONGEST_TEXT",
    "Column",
    "Dialect",
    "Lookup",
    "Update",
    "dialect_for",
    "is_mariadb",
    "known_dialect",
]

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (PostgreSQL(), SQLite(), MySQL(), MariaDB())}

_known: dict[str, Dialect] = {}


def dialect_for(connection: BaseDatabaseWrapper) -> Dialect:
    """The dialect of an open connection."""
    mariadb = getattr(connection, "mysql_is_mariadb", False)  # Django calls both MySQL
    dialect = _known[connection.alias] = DIALECTS["mariadb" if mariadb else connection.vendor]
    return dialect


def known_dialect(alias: str) -> Dialect | None:
    """The dialect that connections of this name had last; None before the first one."""
    return _known.get(alias)
