"""Queries whose SQL is built once: for a short query the ORM takes longer to build it than the server to run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import QuerySet

from config.as_json import as_json
from config.database.rows import fetch

# What stands for a value while the SQL is made: nothing that a query would say by itself.
STAND_INS: dict[type, Callable[[int], Any]] = {
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

    def __init__(self, make: Callable[..., QuerySet[Any, Any]]) -> None:
        self.make = make
        self.__doc__ = make.__doc__
        self._known: dict[tuple[Any, ...], tuple[str, list[Any]]] = {}

    def __call__(self, **values: Any) -> list[tuple[Any, ...]]:
        connection = connections[DEFAULT_DB_ALIAS]
        if connection.vendor != "postgresql":
            return list(self.make(**values))
        flags = tuple(item for item in values.items() if type(item[1]) not in STAND_INS)
        if flags not in self._known:
            self._known[flags] = self._compile(values)
        sql, places = self._known[flags]
        params = [_sent(values[place]) if isinstance(place, Place) else place for place in places]
        return fetch(connection, sql, params)

    def _compile(self, values: Mapping[str, Any]) -> tuple[str, list[Any]]:
        named = [name for name, value in values.items() if type(value) in STAND_INS]
        stand_ins = {name: STAND_INS[type(values[name])](number) for number, name in enumerate(named, 1)}
        sql, params = self.make(**{**values, **stand_ins}).query.sql_with_params()
        return sql, [self._place(param, stand_ins) for param in params]

    def _place(self, param: Any, stand_ins: Mapping[str, Any]) -> Any:
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


def _sent(value: Any) -> Any:
    """As a lookup gives it to PostgreSQL (`config.fields.AnyOf`)."""
    return as_json(value) if isinstance(value, frozenset) else value
