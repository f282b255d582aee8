"""Buckets: what an arrival moves and what it leaves alone, and counting anew."""

from datetime import timedelta

import pytest

from buffer.events.buckets import arrive, recount_buckets
from buffer.events.models import Bucket
from config.database.clock import database_now
from tests.row_locks import locks_asked_for

pytestmark = pytest.mark.django_db


def test_an_arrival_restarts_the_idle_timer_and_not_the_cap(stream):
    first = database_now()
    later = first + timedelta(minutes=1)
    for now in (first, later):
        arrive(stream, {"WH-1": (1, 0)}, now)
    bucket = Bucket.objects.get()
    assert (bucket.first_arrival, bucket.cap_at) == (first, first + stream.cap)
    assert (bucket.last_arrival, bucket.idle_at) == (later, later + stream.idle)


def test_the_first_arrival_after_a_cut_begins_a_new_cap(stream):
    first = database_now()
    later = first + timedelta(minutes=1)
    arrive(stream, {"WH-1": (1, 0)}, first)
    Bucket.objects.all().empty()
    arrive(stream, {"WH-1": (1, 0)}, later)
    bucket = Bucket.objects.get()
    assert (bucket.first_arrival, bucket.cap_at, bucket.due_at) == (later, later + stream.cap, later + stream.idle)


def test_who_counts_anew_keeps_arrivals_out(stream):
    """An order that arrives after the look at the bucket and before the count is written would not be counted."""
    now = database_now()
    arrive(stream, {"WH-1": (3, 0)}, now)
    with locks_asked_for() as locks:
        assert recount_buckets(stream, ["WH-1"], now) == -3
    assert locks == ["buffer_bucket"]
    assert Bucket.objects.get().open_count == 0
