"""Index hints for locking reads on MariaDB and MySQL, which lock whatever they pass on their way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, models


@contextmanager
def through(model: type[models.Model], index: str) -> Iterator[None]:
    """Queries on `model` go through this index. By one of the server's own choice they pass, sort and lock rows that
    they do not want: a second worker, which skips what is locked, misses them, and writers wait."""
    if connection.vendor != "mysql":
        yield
        return
    with connection.execute_wrapper(lambda run, sql, *rest: run(forced(sql, model, index), *rest)):
        yield


def forced(sql: str, model: type[models.Model], index: str) -> str:
    """The statement with the hint; MySQL and MariaDB only."""
    table = f"FROM `{model._meta.db_table}`"
    return sql.replace(table, f"{table} FORCE INDEX (`{index}`)", 1)
