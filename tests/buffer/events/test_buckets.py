"""Buckets: what an arrival moves and what it leaves alone, and counting anew."""

from datetime import timedelta

import pytest

from buffer.events.arrivals import arrive, recount_buckets
from buffer.events.models import Bucket
from config.database.clock import database_now
from tests.conftest import order
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
    bucket = Bucket.objects.get()
    assert (bucket.open_count, bucket.due_at, bucket.cap_at) == (0, None, None)


def test_a_full_bucket_stays_due_since_it_was_full(stream):
    """Else each arrival would put it behind the others, and it would never be overdue."""
    full = database_now()
    for now in (full, full + timedelta(minutes=1)):
        arrive(stream, {"WH-1": (stream.max_batch, 0)}, now)
    assert Bucket.objects.get().due_at == full


def test_an_arrival_brings_no_second_look_at_locked_orders_forward(stream):
    """A leftover that was found locked waits for a moment: else flushers would look at it over and over."""
    now = database_now()
    arrive(stream, {"WH-1": (1, 0)}, now)
    later = now + timedelta(seconds=1)
    Bucket.objects.update(urged="leftover", due_at=later)
    arrive(stream, {"WH-1": (stream.max_batch, 0)}, now)
    assert Bucket.objects.get().due_at == later


def test_a_bucket_that_was_counted_empty_and_is_not_is_looked_at(ingest, records, stream):
    """Else it would be filled, and neither held nor due: nobody would ever cut it."""
    now = ingest(records(order()))
    Bucket.objects.all().empty()
    assert recount_buckets(stream, ["WH-1"], now) == 1
    assert Bucket.objects.get().due_at == now
    Bucket.objects.update(open_count=0, due_at=None, held=True)
    recount_buckets(stream, ["WH-1"], now)
    assert Bucket.objects.get().due_at is None
