"""Commits that do not wait for the disk."""

from __future__ import annotations

from django.db import DEFAULT_DB_ALIAS, connections


def commit_lazily(using: str = DEFAULT_DB_ALIAS) -> None:
    """Do not wait for the disk when the transaction under way commits.

    A server that crashes within a second may lose the whole transaction, so this is only for work that is then
    done again. Only PostgreSQL decides this by transaction; elsewhere nothing changes.
    """
    connection = connections[using]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL synchronous_commit TO off")
