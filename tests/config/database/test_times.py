"""Times as they are read from each database: in UTC, whatever zone they were written in."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from django.db import connection

from outbox.channels.models import ChannelState

pytestmark = pytest.mark.django_db
WRITTEN = datetime(2026, 6, 1, 0, 30, 0, 7, timezone(timedelta(hours=5)))


def test_a_time_is_read_in_utc():
    ChannelState.objects.create(name="noted", updated_at=WRITTEN)
    rows = ChannelState.objects.filter(name="noted").values_list("updated_at", flat=True)
    for read in (rows.get(), next(rows.iterator())):
        assert (read, read.tzinfo) == (WRITTEN, UTC)


def test_postgresql_reads_it_by_the_drivers_own_loader():
    if connection.vendor != "postgresql":
        pytest.skip("a loader of psycopg")
    with connection.cursor() as cursor:
        loader = cursor.cursor.adapters.get_loader(cursor.adapters.types["timestamptz"].oid, 0)
        assert loader.__module__.startswith("psycopg")
