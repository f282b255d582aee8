"""The overflow buffer: rows of messages over the rate, and the stores they wait in; the settings name one of them."""

from __future__ import annotations

from functools import cache

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS

from config.environment.databases import CassandraPlace
from throttler.overflow.django import DjangoStore
from throttler.overflow.store import OverflowStore


def store_of_settings(using: str = DEFAULT_DB_ALIAS) -> OverflowStore:
    """Not connected yet. In Cassandra one for the whole process: its connections serve every thread."""
    if settings.CASSANDRA:
        return _in_cassandra(settings.CASSANDRA, settings.THROTTLER_BUFFER_DAYS)
    return DjangoStore(using)


@cache
def _in_cassandra(place: CassandraPlace, days: int) -> OverflowStore:
    # Only here: with the other store the driver need not be installed.
    from throttler.overflow.cassandra import CassandraStore

    return CassandraStore(place, days)
