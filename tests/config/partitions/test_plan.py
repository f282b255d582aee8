"""The plan is a pure function: of the spec, of what exists, of the day, and of what is unfinished."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st

from config.partitions import Partition, PartitionSpec, Plan
from config.partitions.rotation import days_left_of, steps_for
from config.partitions.spec import shift, start_of
from tests.config.partitions.models import DAILY, LETTERS, MONTHLY

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def spec(**changes):
    values = {"model": "a.B", "column": "c", "period": "month", "encoding": "yyyymm", "ahead": 3}
    return PartitionSpec(**{**values, "keep_months_setting": "TEST_KEEP_MONTHS", **changes})


def partitions(*starts, of=MONTHLY):
    return [of.partition(start) for start in starts]


def plan(existing, now=NOW, unfinished=None, of=MONTHLY):
    steps = steps_for(of, existing, now, lambda partition: (unfinished or {}).get(partition.label, 0))
    return {(step.action, step.partition.label): step.reason for step in steps}


def labels(existing, action, **arguments):
    return [label for done, label in plan(existing, **arguments) if done == action]


def test_an_empty_table_gets_its_window_and_three_months_ahead():
    assert labels([], "create") == ["202608", "202609", "202610", "202611", "202612", "202701", "202702"]


def test_a_gap_is_filled_and_stops_no_older_partition_from_going():
    existing = partitions(date(2026, 3, 1), date(2026, 5, 1), date(2026, 9, 1), date(2026, 11, 1))
    assert labels(existing, "drop") == ["202603", "202605"]
    assert labels(existing, "create") == ["202608", "202610", "202612", "202701", "202702"]


def test_one_kept_partition_stops_no_other_from_going():
    existing = partitions(date(2026, 3, 1), date(2026, 4, 1), date(2026, 5, 1))
    found = plan(existing, unfinished={"202604": 2})
    assert found["keep", "202604"] == "2 unfinished"
    assert ("drop", "202603") in found
    assert ("drop", "202605") in found


def test_the_oldest_month_of_the_window_stays_and_the_one_before_goes():
    existing = partitions(date(2026, 7, 1), date(2026, 8, 1))
    assert labels(existing, "drop") == ["202607"]
    assert labels(existing, "keep") == ["202608"]


def test_the_month_is_that_of_utc():
    kiritimati = timezone(timedelta(hours=14))
    assert "202703" not in labels([], "create", now=datetime(2026, 12, 1, 5, tzinfo=kiritimati))


def test_unknown_bounds_are_kept_with_the_reason():
    unknown = Partition("odd", "odd", date(2020, 1, 1), None)
    assert "unknown" in plan([unknown])["keep", "odd"]


def test_only_old_partitions_are_asked_for_unfinished_rows():
    asked = []
    existing = [*partitions(date(2026, 3, 1)), *MONTHLY.wanted(NOW.date())]
    steps_for(MONTHLY, existing, NOW, lambda partition: asked.append(partition.label) or 0)
    assert asked == ["202603"]


def test_a_partition_without_lower_bound_covers_all_that_is_older():
    first = Partition("p202610", "202610", None, date(2026, 11, 1))
    assert labels([first], "create") == ["202611", "202612", "202701", "202702"]


def test_retention_in_days_keeps_a_month_until_its_last_day_is_old_enough(settings):
    settings.TEST_KEEP_DAYS = 180
    existing = partitions(date(2026, 4, 1), date(2026, 5, 1), of=LETTERS)
    assert labels(existing, "drop", of=LETTERS) == ["202604"]  # 180 days ago it was 25 May


def test_days():
    found = labels([], "create", of=DAILY, now=datetime(2026, 3, 1, 1, tzinfo=UTC))
    assert found == ["20260226", "20260227", "20260228", "20260301", "20260302", "20260303", "20260304"]


def test_retention_of_zero_is_for_ever(settings):
    settings.TEST_KEEP_MONTHS = 0
    assert labels(partitions(date(2000, 1, 1)), "drop") == []
    assert labels([], "create") == ["202611", "202612", "202701", "202702"]


def test_back_limits_what_must_exist_but_not_what_is_kept():
    narrow = spec(back=1)
    assert labels([], "create", of=narrow)[0] == "202610"
    assert labels(partitions(date(2026, 8, 1)), "keep", of=narrow) == ["202608"]


def test_back_never_asks_for_what_is_dropped():
    assert labels([], "create", of=spec(back=24))[0] == "202608"


@given(st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)), st.sets(st.integers(-40, 10)), st.integers(1, 24))
def test_applying_a_plan_leaves_nothing_to_do(now, offsets, keep):
    now = now.replace(tzinfo=UTC)
    current = start_of("month", now.date())
    existing = [MONTHLY.partition(shift("month", current, offset)) for offset in sorted(offsets)]
    with override_settings(TEST_KEEP_MONTHS=keep):
        steps = steps_for(MONTHLY, existing, now, lambda _: 0)
        dropped = [step.partition for step in steps if step.action == "drop"]
        created = [step.partition for step in steps if step.action == "create"]
        after = [partition for partition in [*existing, *created] if partition not in dropped]
        assert {step.action for step in steps_for(MONTHLY, after, now, lambda _: 0)} == {"keep"}
        assert days_left_of(after, now) >= 3 * 28
        assert all(partition.upper <= shift("month", current, -keep) for partition in dropped)


def test_the_days_left_end_at_the_first_hole():
    existing = partitions(date(2026, 11, 1), date(2026, 12, 1), date(2027, 2, 1))
    assert days_left_of(existing, NOW) == pytest.approx(40.5)
    assert days_left_of(existing[1:], NOW) == 0
    assert days_left_of([], NOW) == 0


def test_a_plan_prints_itself():
    existing = partitions(date(2026, 3, 1), date(2026, 4, 1))
    steps = steps_for(MONTHLY, existing, NOW, lambda partition: 3 if partition.label == "202603" else 0)
    found = Plan(MONTHLY, "default", "events", 97.4, steps)
    lines = str(found).splitlines()
    assert lines[0] == "events: 7 create, 1 drop, 1 keep; room for 97 days"
    assert "  create   p202611  2026-11-01 … 2026-12-01  current" in lines
    assert "  keep     p202603  2026-03-01 … 2026-04-01  3 unfinished" in lines
    assert "  drop     p202604  2026-04-01 … 2026-05-01  ended before 2026-08-01, nothing unfinished" in lines


@pytest.mark.parametrize("changes", [{"keep_days_setting": "X"}, {"keep_months_setting": ""}, {"period": "day"}])
def test_a_spec_that_contradicts_itself_is_refused(changes):
    with pytest.raises(ValueError, match=r"a\.B"):
        spec(**changes)
