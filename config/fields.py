"""Model fields: identifiers that compare bytes on every database, and time-ordered ids."""

from __future__ import annotations

import os
import time
import uuid
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

IDENTIFIER_LENGTH = 200


def collation_for(connection: BaseDatabaseWrapper) -> str | None:
    """The collation under which two identifiers are equal exactly when their bytes are; None: already so."""
    if connection.vendor == "mysql":
        # The default collations merge WH-a, WH-A, WH-á and (where they pad) "WH-a " into one warehouse.
        return "utf8mb4_nopad_bin" if connection.mysql_is_mariadb else "utf8mb4_0900_bin"  # type: ignore[attr-defined]
    return "C" if connection.vendor == "postgresql" else None


class IdentifierField(models.CharField):
    """A CharField for keys that come from outside: byte comparison, no padding, no case folding."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("max_length", IDENTIFIER_LENGTH)
        super().__init__(*args, **kwargs)

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, Any]:
        return {**super().db_parameters(connection), "collation": collation_for(connection)}


_last = 0


def uuid7() -> uuid.UUID:
    """A UUID version 7 (RFC 9562): 48 bits of milliseconds, 12 of sub-millisecond order, 62 random.

    Strictly rising within a process, so rows sort by creation and range partitions by time are possible.
    """
    global _last
    ticks = time.time_ns() * 4096 // 1_000_000
    _last = ticks = max(ticks, _last + 1)
    millis, fraction = divmod(ticks, 4096)
    tail = int.from_bytes(os.urandom(8)) & (2**62 - 1)
    return uuid.UUID(int=millis << 80 | 7 << 76 | fraction << 64 | 2 << 62 | tail)


def uuid7_floor(milliseconds: int) -> uuid.UUID:
    """The smallest version-7 UUID of that Unix time: the lower bound of a partition or a scan."""
    return uuid.UUID(int=milliseconds << 80 | 7 << 76 | 2 << 62)
