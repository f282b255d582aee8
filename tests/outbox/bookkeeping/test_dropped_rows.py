"""Rows that left with their partitions are counted once, however often their drop was begun."""

from __future__ import annotations

from datetime import date

import pytest
from django.db import DEFAULT_DB_ALIAS

from config.partitions import Partition
from outbox.bookkeeping import counters
from outbox.partitioned import MESSAGES

pytestmark = pytest.mark.django_db


def test_a_drop_that_is_recorded_again_replaces_what_was_recorded():
    day = Partition("p20200101", "20200101", date(2020, 1, 1), date(2020, 1, 2), key="20200101")
    other = Partition("p20200102", "20200102", date(2020, 1, 2), date(2020, 1, 3), key="20200102")
    counters.record_dropped(DEFAULT_DB_ALIAS, other, {("outbox", "sent"): 5})
    for counts in ({("outbox", "sent"): 2, ("outbox", "expired"): 1}, {("outbox", "sent"): 3}):
        counters.record_dropped(DEFAULT_DB_ALIAS, day, counts)
    assert counters.dropped_rows("outbox", MESSAGES) == 5 + 3
