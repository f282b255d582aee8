"""Queries: short ones without the ORM's overhead, many rows a chunk at a time, and what several flows ask, read once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connections, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

from config.database.dialects.base import Params, Row, Values
from config.payload import as_json


# -- Rows without Django's converters ------------------------------------------------------------------------
def fast_rows(rows: QuerySet) -> Iterable[Row]:
    """The rows of a `values_list()`."""
    connection = connections[rows.db]
    if connection.vendor != "postgresql":
        return rows
    return fetch(connection, *rows.query.sql_with_params())


def fetch(connection: BaseDatabaseWrapper, sql: str, params: Params) -> list[Row]:
    """The rows of a statement on PostgreSQL, with plain columns.

    Django reads each time with a loader written in Python: 5 µs each, several in a row. Here psycopg's own
    loader reads them; nothing else there needs Django's converters.
    """
    from psycopg import adapters
    from psycopg.pq import Format

    with connection.cursor() as cursor:
        known = adapters.types["timestamptz"].oid
        loader = adapters.get_loader(known, Format.TEXT)
        if loader is not None:
            cursor.cursor.adapters.register_loader(known, loader)  # of this cursor alone
        cursor.execute(sql, params)
        return list(cursor.fetchall())


# -- Queries whose SQL is built once -------------------------------------------------------------------------
# For a short query the ORM takes longer to build it than the server to run it.
# What stands for a value while the SQL is made: nothing that a query would say by itself.
STAND_INS: dict[type, Callable[[int], object]] = {
    str: lambda number: f"\u2039{number}\u203a",
    datetime: lambda number: datetime(1, 1, 1, 0, 0, 0, number, tzinfo=UTC),
    UUID: lambda number: UUID(int=number),
    frozenset: lambda number: frozenset({f"\u2039{number}\u203a"}),
}


class compiled:
    """`@compiled` over a function of named values that returns a `values_list()`: calling it gives the rows.

    On PostgreSQL the function is asked once, with stand-ins; where they turn up among the parameters is where
    later values go. Numbers and flags (a limit, say) are part of the SQL: there is one for each combination.
    Elsewhere lists become many parameters, so the ORM builds each query anew.
    """

    def __init__(self, make: Callable[..., QuerySet]) -> None:
        self.make = make
        self.__doc__ = make.__doc__
        self._known: dict[tuple[tuple[str, object], ...], tuple[str, Params]] = {}

    def __call__(self, **values: object) -> list[Row]:
        connection = connections[DEFAULT_DB_ALIAS]
        if connection.vendor != "postgresql":
            return list(self.make(**values))
        flags = tuple(item for item in values.items() if type(item[1]) not in STAND_INS)
        if flags not in self._known:
            self._known[flags] = self._compile(values)
        sql, places = self._known[flags]
        params = [_sent(values[place]) if isinstance(place, Place) else place for place in places]
        return fetch(connection, sql, params)

    def _compile(self, values: Values) -> tuple[str, Params]:
        named = [name for name, value in values.items() if type(value) in STAND_INS]
        stand_ins = {name: STAND_INS[type(values[name])](number) for number, name in enumerate(named, 1)}
        sql, params = self.make(**{**values, **stand_ins}).query.sql_with_params()
        return sql, [self._place(param, stand_ins) for param in params]

    def _place(self, param: object, stand_ins: Values) -> object:
        for name, stand_in in stand_ins.items():
            if param == _sent(stand_in):
                return Place(name)
        if not isinstance(param, str | int):
            # A moment or an id that the query thought of itself would stay the same for ever.
            raise TypeError(f"{self.make.__qualname__}: {param!r} is none of its values")
        return param


class Place(str):
    """The name of the value that goes here."""

    __slots__ = ()


def _sent(value: object) -> object:
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
