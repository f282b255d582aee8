"""Model fields: identifiers that compare bytes on every database, and UUIDs that rise with time (RFC 9562, version 7)."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.lookups import Exact, In
from django.db.models.sql.compiler import SQLCompiler

from config.payload import as_json

IDENTIFIER_LENGTH = 200
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # what no customer's id may hold


def storable(text: str, length: int = IDENTIFIER_LENGTH) -> str:
    """A text from elsewhere as a text column takes it: at most `length` characters, no NUL, no half of a character."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "backslashreplace").decode()[:length]


def in_ascii(value: object) -> Any:
    """A text, or JSON's lists and objects of them, with the other characters escaped: any character set holds it."""
    if isinstance(value, str):
        return value.encode("ascii", "backslashreplace").decode()
    if isinstance(value, list | tuple):
        return [in_ascii(item) for item in value]
    return {in_ascii(name): in_ascii(item) for name, item in value.items()} if isinstance(value, dict) else value


def collation_for(connection: BaseDatabaseWrapper) -> str | None:
    """The collation that compares bytes; None where that is the default."""
    if connection.vendor == "mysql":
        # The default collations merge WH-a, WH-A, WH-á and (where they pad) "WH-a " into one warehouse.
        return "utf8mb4_nopad_bin" if getattr(connection, "mysql_is_mariadb", False) else "utf8mb4_0900_bin"
    return "C" if connection.vendor == "postgresql" else None


class IdentifierField(models.CharField):
    """A CharField for keys that come from outside: byte comparison, no padding, no case folding."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("max_length", IDENTIFIER_LENGTH)
        super().__init__(*args, **kwargs)

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, str | None]:
        return {**super().db_parameters(connection), "collation": collation_for(connection)}


class StatusField(IdentifierField):
    """A status; `flags` names the columns of those values that MySQL finds by a flag (`IndexByFlag`)."""

    def __init__(self, *args: object, flags: Mapping[str, str] | None = None, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.flags = dict(flags or {})

    def deconstruct(self) -> tuple[str, str, Sequence, dict]:
        """As an IdentifierField: in the database it is one, and migrations know no flags."""
        name, _path, args, kwargs = super().deconstruct()
        return name, f"{IdentifierField.__module__}.{IdentifierField.__qualname__}", args, kwargs


@StatusField.register_lookup
class IsStatus(Exact):
    """`status="pending"`; on MySQL and MariaDB the flag is compared as well, because the flag is what is indexed."""

    def as_mysql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, Sequence]:
        sql, params = self.as_sql(compiler, connection)
        flag = self.lhs.output_field.flags.get(self.rhs)
        if not flag:
            return sql, params
        column = f"{compiler.quote_name_unless_alias(self.lhs.alias)}.{connection.ops.quote_name(flag)}"
        return f"({sql} AND {column} = 1)", params


class Named(models.Value):
    """Stands in a query for a value that each call of `config.database.queries.compiled` brings."""

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, Any]:
        return "%s", [self]


@models.Field.register_lookup
class AnyOf(In):
    """`column__any={…}` is `column__in`, for sets of hundreds of words or ids: PostgreSQL gets them as one JSON array.

    Django prepares, quotes and joins each value instead, which takes longer than the query itself; a list it
    would even search for expressions. The driver's own arrays take half as long.
    """

    lookup_name = "any"
    prepare_rhs = False

    def get_prep_lookup(self) -> Any:
        return self.rhs if isinstance(self.rhs, Named) else list(self.rhs)

    def as_postgresql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, Sequence]:
        lhs, params = self.process_lhs(compiler, connection)
        kind = "uuid" if isinstance(self.lhs.output_field, models.UUIDField) else "text"
        array = f"ARRAY(SELECT wanted::{kind} FROM json_array_elements_text(%s::json) wanted)"  # noqa: S608 (a name of ours)
        return f"{lhs} = ANY({array})", [*params, self.rhs if isinstance(self.rhs, Named) else as_json(self.rhs)]


@models.Field.register_lookup
class OneOf(AnyOf):
    """`column__oneof=("pending", …)` is `column__in` with the program's own constants in the statement itself.

    SQLite sees that a partial index serves a query only where the values are written out.
    """

    lookup_name = "oneof"

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, Any]:
        lhs, params = self.process_lhs(compiler, connection)
        values = [str(value) for value in self.rhs]
        if not all(map(str.isidentifier, values)):
            raise ValueError(f"{self.lookup_name}: {values} are not plain words")
        return f"{lhs} IN ({', '.join(map(repr, values))})", list(params)

    as_postgresql = as_sql


# -- UUIDs ---------------------------------------------------------------------------------------------------
def is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


_last = 0
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def uuid7() -> uuid.UUID:
    """A UUID version 7 (RFC 9562): 48 bits of milliseconds, 12 of sub-millisecond order, 62 random.

    Strictly rising within a process, so rows sort by creation and range partitions by time are possible.
    """
    global _last
    ticks = time.time_ns() * 4096 // 1_000_000
    _last = ticks = max(ticks, _last + 1)
    return _of_ticks(ticks)


def uuid7_after(previous: uuid.UUID | None) -> uuid.UUID:
    """A version-7 UUID above `previous`, even where this host's clock is behind the one that made it."""
    fresh = uuid7()
    return fresh if previous is None or fresh > previous else _of_ticks(_ticks(previous) + 1)


def uuid7s_from(moment: datetime, previous: uuid.UUID | None) -> Iterator[uuid.UUID]:
    """Rising version-7 UUIDs from a moment on, which the database has told, and above `previous`; no host's clock is in them."""
    first = (moment - EPOCH) // timedelta(microseconds=1) * 4096 // 1000
    return map(_of_ticks, count(max(first, _ticks(previous) + 1) if previous else first))


def _of_ticks(ticks: int) -> uuid.UUID:
    """One of that 4096th of a millisecond since 1970."""
    millis, fraction = divmod(ticks, 4096)
    tail = int.from_bytes(os.urandom(8)) & (2**62 - 1)
    return uuid.UUID(int=millis << 80 | 7 << 76 | fraction << 64 | 2 << 62 | tail)


def _ticks(value: uuid.UUID) -> int:
    return value.int >> 80 << 12 | value.int >> 64 & 0xFFF


def uuid7_milliseconds(value: uuid.UUID) -> int:
    """The Unix time in a version-7 UUID."""
    return value.int >> 80


def smallest_uuid7(milliseconds: int) -> uuid.UUID:
    """The smallest version-7 UUID of that Unix time: the lower bound of a partition or a scan."""
    return uuid.UUID(int=milliseconds << 80 | 7 << 76 | 2 << 62)
