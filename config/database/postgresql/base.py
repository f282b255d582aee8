"""Django's backend for PostgreSQL: an answer is not waited for without end where `OPTIONS` have a `read_timeout`."""

from __future__ import annotations

from functools import partial
from typing import Any

from django_prometheus.db.backends.postgresql.base import DatabaseWrapper as MeasuredWrapper


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


DatabaseWrapper = PostgreSQLWrapper  # the name that Django looks for
