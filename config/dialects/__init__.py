"""How each database unpacks JSON rows, upserts them, and says what changed: one class per vendor."""

from __future__ import annotations

from django.db.backends.base.base import BaseDatabaseWrapper

from config.dialects.base import Dialect
from config.dialects.vendors import MariaDB, MySQL, PostgreSQL, SQLite

__all__ = ["Dialect", "dialect_for"]

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect for dialect in (PostgreSQL(), SQLite(), MySQL(), MariaDB())
}


def dialect_for(connection: BaseDatabaseWrapper) -> Dialect:
    """The dialect of an open connection."""
    mariadb = connection.vendor == "mysql" and connection.mysql_is_mariadb  # type: ignore[attr-defined]
    return DIALECTS["mariadb" if mariadb else connection.vendor]
