"""Ask whether another transaction is writing a row, without waiting for it."""

from __future__ import annotations

import hashlib

from django.db import OperationalError, connections, models

from config.database.errors import code_of

NOWAIT = {1205, 3572}  # MariaDB, MySQL


def written_elsewhere(name: str, rows: models.QuerySet) -> bool:
    """Whether another transaction has inserted or locked the one row that `rows` finds, and goes on.

    `name` says the same in words, to lock a row that is not there yet. Inside a transaction, which this makes
    the owner of `name` if nobody was.
    """
    connection = connections[rows.db]
    if connection.vendor == "postgresql":
        # An uncommitted row is invisible, and nothing of it can be locked: the name is locked instead.
        number = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), signed=True)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
            return not cursor.fetchone()[0]
    if connection.vendor == "sqlite":
        return False  # BEGIN IMMEDIATE has waited already
    try:
        list(rows.select_for_update(nowait=True).values_list("pk", flat=True)[:1])
    except OperationalError as error:
        if code_of(error) in NOWAIT:
            return True
        raise
    return False
