"""Month arithmetic and encodings, without a database."""

import uuid
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.fields import smallest_uuid7, uuid7
from config.partitions.spec import bound_of, day_of, label_of, literal, shift, start_of, value_of

DAYS = st.dates(date(1990, 1, 1), date(2200, 12, 31))
PERIODS = st.sampled_from(["month", "day"])
COUNTS = st.integers(-1200, 1200)


@given(PERIODS, DAYS, COUNTS, COUNTS)
def test_shifts_add_up(period, day, one, other):
    start = start_of(period, day)
    assert shift(period, shift(period, start, one), other) == shift(period, start, one + other)
    assert shift(period, start, 0) == start


@given(PERIODS, DAYS)
def test_every_day_lies_in_exactly_one_period(period, day):
    start = start_of(period, day)
    following = shift(period, start, 1)
    assert start <= day < following
    assert start_of(period, following - timedelta(days=1)) == start
    assert start_of(period, following) == following


@given(PERIODS, DAYS, DAYS)
def test_labels_sort_as_periods_do(period, one, other):
    one, other = start_of(period, one), start_of(period, other)
    assert (label_of(period, one) < label_of(period, other)) == (one < other)


@pytest.mark.parametrize(
    ("start", "count", "expected"),
    [
        (date(2026, 12, 1), 1, date(2027, 1, 1)),
        (date(2027, 1, 1), -1, date(2026, 12, 1)),
        (date(2026, 11, 1), -11, date(2025, 12, 1)),
        (date(2026, 11, 1), -23, date(2024, 12, 1)),
        (date(2028, 2, 1), 1, date(2028, 3, 1)),
    ],
)
def test_months_cross_years(start, count, expected):
    assert shift("month", start, count) == expected


@given(DAYS, st.sampled_from(["yyyymm", "date", "uuid7"]))
def test_a_bound_is_read_as_it_was_written(day, encoding):
    start = start_of("month", day)
    for native_uuid in (True, False):
        text = literal(value_of(encoding, start), native_uuid=native_uuid)
        assert bound_of(encoding, text.strip("'")) == start


@given(st.datetimes(datetime(1990, 1, 1), datetime(2200, 1, 1)))
def test_ids_of_a_day_lie_between_its_bounds(moment):
    moment = moment.replace(tzinfo=UTC)
    made = smallest_uuid7(int(moment.timestamp() * 1000))
    day = moment.date()
    assert value_of("uuid7", day) <= made < value_of("uuid7", day + timedelta(days=1))
    assert day_of("uuid7", made.hex) == day


def test_a_fresh_id_lies_in_today():
    before = datetime.now(UTC).date()
    assert before <= day_of("uuid7", str(uuid7())) <= datetime.now(UTC).date()


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("yyyymm", "202613"),
        ("yyyymm", "MAXVALUE"),
        ("yyyymm", "-1"),
        ("date", "to_days('2026-01-01')"),
        ("uuid7", str(uuid.UUID(int=2**128 - 1))),
        ("uuid7", str(smallest_uuid7(1_700_000_000_001))),
        ("uuid7", "x"),
    ],
)
def test_a_foreign_bound_is_unknown(encoding, text):
    assert bound_of(encoding, text) is None
