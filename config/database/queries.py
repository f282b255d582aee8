"""Queries: short ones whose SQL is built once, index hints, many rows a chunk at a time, and what several flows ask, read once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from django.db import DEFAULT_DB_ALIAS, connections, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

from config.database.dialects.base import Params, Row, Values
from config.fields import Named
from config.payload import as_json


# -- Queries whose SQL is built once -------------------------------------------------------------------------
class compiled:
    """`@compiled` over a function of named values that returns a `values_list()`: calling it gives the rows.

    On PostgreSQL the function is asked once, with names in place of the values; for a short query the ORM takes longer to
    build it than the server to run it. Numbers and flags (a limit, say) are part of the SQL: there is one for each
    combination. Elsewhere lists become many parameters, so the ORM builds each query anew.
    """

    def __init__(self, make: Callable[..., QuerySet]) -> None:
        self.make = make
        self.__doc__ = make.__doc__
        self._known: dict[tuple[tuple[str, object], ...], tuple[str, Params]] = {}

    def __call__(self, **values: Any) -> list[Row]:
        connection = connections[DEFAULT_DB_ALIAS]
        if connection.vendor != "postgresql":
            return list(self.make(**values))
        flags = tuple(item for item in values.items() if isinstance(item[1], int))
        if flags not in self._known:
            names = {name: Named(name) for name in values}
            self._known[flags] = self._compile(names | dict(flags))
        sql, params = self._known[flags]
        with connection.cursor() as cursor:
            cursor.execute(sql, [_sent(values[each.value]) if isinstance(each, Named) else each for each in params])
            return list(cursor.fetchall())

    def _compile(self, values: Values) -> tuple[str, Params]:
        sql, params = self.make(**values).query.sql_with_params()
        for param in params:
            if not isinstance(param, Named | str | int):
                # A moment or an id that the query thought of itself would stay the same for ever.
                raise TypeError(f"{self.make.__qualname__}: {param!r} is none of its values")
        return sql, params


def _sent(value: Any) -> Any:
    """As a lookup gives it to PostgreSQL (`config.fields.AnyOf`)."""
    return as_json(value) if isinstance(value, frozenset) else value


def is_mariadb(connection: BaseDatabaseWrapper) -> bool:
    """Django calls both MySQL; asks the server where the connection has not been opened yet."""
    return bool(getattr(connection, "mysql_is_mariadb", False))


# -- MariaDB and MySQL: who it is, and index hints -----------------------------------------------------------
@contextmanager
def through(model: type[models.Model], index: str, database: str = DEFAULT_DB_ALIAS) -> Iterator[None]:
    """Queries on `model` go through this index. By one of the server's own choice they pass, sort and lock rows that
    they do not want: a second worker, which skips what is locked, misses them, and writers wait."""
    connection = connections[database]
    if connection.vendor != "mysql":
        yield
        return
    with connection.execute_wrapper(lambda run, sql, *rest: run(forced(sql, model, index), *rest)):
        yield


def forced(sql: str, model: type[models.Model], index: str) -> str:
    """The statement with the hint; MySQL and MariaDB only."""
    table = f"FROM `{model._meta.db_table}`"
    return sql.replace(table, f"{table} FORCE INDEX (`{index}`)", 1)


# -- A chunk at a time ---------------------------------------------------------------------------------------
CHUNK = 2000  # rows: no transaction grows long, and no statement has too many parameters
T = TypeVar("T")


def batched(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """`values` in pieces of at most `size`."""
    return (values[start : start + size] for start in range(0, len(values), size))


def in_chunks(rows: QuerySet) -> Iterator[QuerySet]:
    """Queries for some of `rows` each, by their keys, until none is left: whoever asks deletes them."""
    while ids := list(rows.values_list("pk", flat=True)[:CHUNK]):
        yield rows.filter(pk__in=ids)


def by_key(rows: QuerySet, size: int) -> Iterator[list[Row]]:
    """The rows of a `values_list()` whose first column is the primary key, by rising key: a short query for each chunk."""
    chunk = list(rows.order_by("pk")[:size])
    while chunk:
        yield chunk
        chunk = list(rows.filter(pk__gt=chunk[-1][0]).order_by("pk")[:size])


def delete_in_chunks(rows: QuerySet) -> int:
    """Delete `rows`; returns how many."""
    return sum(chunk.delete()[0] for chunk in in_chunks(rows))


# -- What several flows ask for one page or one scrape -------------------------------------------------------
Answer = TypeVar("Answer")
Names = Collection[str] | None  # None: of all

_answers: ContextVar[dict[Hashable, Any] | None] = ContextVar("answers", default=None)


@contextmanager
def asked_together() -> Iterator[None]:
    """Within this, what `of_names` reads is read once for all names; at its end it is forgotten, so no page shows another's.

    Nothing may be written within it, and no generator may hold it open.
    """
    token = _answers.set({})
    try:
        yield
    finally:
        _answers.reset(token)


def of_names(read: Callable[..., Answer], names: Names, *more: Hashable) -> Answer:
    """`read(names, *more)`, or of more names than these: `read(None, *more)`, where several ask together."""
    answers = _answers.get()
    if answers is None:
        return read(names, *more)
    asked = (read, more)
    if asked not in answers:
        answers[asked] = read(None, *more)
    answer: Answer = answers[asked]
    return answer
