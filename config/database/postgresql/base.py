"""Django's backend for PostgreSQL: no answer is waited for without end where `OPTIONS` have a `read_timeout`; times read fast."""

from __future__ import annotations

from functools import partial
from typing import Any

from django_prometheus.db.backends.postgresql.base import DatabaseWrapper as MeasuredWrapper
from psycopg import adapters
from psycopg.pq import Format

OWN_LOADER = adapters.get_loader(adapters.types["timestamptz"].oid, Format.TEXT)


class PostgreSQLWrapper(MeasuredWrapper):
    """`read_timeout` is in seconds, as for MySQL, whose driver knows it; without it waits have no end.

    PostgreSQL's own library has none: keepalives notice a host that is gone, not a server that is stopped.
    """

    read_timeout: float | None = None

    def get_connection_params(self) -> dict[str, Any]:
        params: dict[str, Any] = super().get_connection_params()
        self.read_timeout = params.pop("read_timeout", None)
        return params

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        session = super().get_new_connection(conn_params)
        if self.read_timeout:
            session.wait = partial(session.wait, timeout=self.read_timeout)  # every statement's way to its answer
        return session

    def create_cursor(self, name: str | None = None) -> Any:
        """Times are read by psycopg's own loader, written in C: Django's sets the zone, UTC, of each again, 5 µs each."""
        cursor = super().create_cursor(name)
        if OWN_LOADER is not None:
            cursor.adapters.register_loader("timestamptz", OWN_LOADER)
        return cursor


DatabaseWrapper = PostgreSQLWrapper  # the name that Django looks for
