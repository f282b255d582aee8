"""What a partition starts with: each rule about changelog, log and committed offset."""

from __future__ import annotations

import re
from typing import Any

import pytest

from config.kafka.positions import Log
from config.telemetry.redaction import DOTS, masked_error
from throttler.lanes.restore import RefusedPartition, RestoredPartition, restored
from throttler.lanes.state import PARTITION_KEY, LaneState, PartitionRecord, lane_bytes, partition_bytes

ID, OTHER = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"


def lane(backlog: int = 0, topic_id: str = ID) -> bytes:
    found = LaneState("acme")
    found.drained, found.seen, found.backlog = 40 - backlog, 40, backlog
    return lane_bytes(found, 1, topic_id)


def position(at: int, decided: int = 0, topic_id: str = ID) -> bytes:
    return partition_bytes(PartitionRecord(topic_id, at, decided or at, {"live": 30, "buffered": 20}))


def log(committed: int | None, begin: int = 0, end: int = 100, topic_id: str = ID) -> Log:
    return Log(topic_id, begin, end, committed)


def start(newest: dict[bytes, bytes], of: Log, accept: bool = False, **options: Any) -> RestoredPartition:
    found = restored(3, of, newest, accept, **options)
    assert isinstance(found, RestoredPartition), found.alarm
    return found


def alarm(newest: dict[bytes, bytes], of: Log, **options: bool) -> str:
    found = restored(3, of, newest, False, **options)
    assert isinstance(found, RefusedPartition), found
    assert found.number == 3
    assert "--accept-reset" in found.alarm
    assert "\n" not in found.alarm
    assert masked_error(found.alarm) == re.sub(r"(?<!\w)'.*?'", DOTS, found.alarm), (
        "only the name of a customer is hidden"
    )
    return found.alarm


def both(at: int = 50, **options) -> dict[bytes, bytes]:
    return {b"acme": lane(7), PARTITION_KEY: position(at, **options)}


def test_a_partition_starts_at_the_committed_offset_with_its_lanes():
    found = start(both(decided=60), log(50))
    assert (found.number, found.topic_id, found.position, found.decided) == (3, ID, 50, 60)
    assert found.totals == {"live": 30, "buffered": 20}
    acme = found.lanes["acme"]
    assert (acme.customer, acme.drained, acme.seen, acme.backlog, acme.waits) == ("acme", 33, 40, 7, 0)
    assert (found.forgotten, found.reset) == (frozenset(), "")


@pytest.mark.parametrize(
    ("began", "written_ms", "late_us"),
    [(7_000_000, 7_400, 400_000), (7_000_000, 6_900, 0), (7_000_000, 70_000, 10_000_000), (0, 7_400, 0), (7, 0, 0)],
)
def test_what_left_late_is_known_from_the_brokers_time(began, written_ms, late_us):
    """Clocks may differ, in either direction; an older version has not said when it began."""
    record = partition_bytes(PartitionRecord(ID, 50, 50, {}, began))
    assert start({PARTITION_KEY: record}, log(50), written_ms=written_ms).late_us == late_us


@pytest.mark.parametrize(
    ("began", "written_ms", "now_ms", "expected_us"),
    [
        (7_000_000, 7_400, 9_400, 9_000_000),
        (7_000_000, 7_400, 1_000, 7_000_000),
        (0, 7_400, 9_400, 0),
        (7, 0, 9_400, 0),
    ],
)
def test_what_the_last_owners_clock_would_show_is_known_from_host_and_broker(began, written_ms, now_ms, expected_us):
    """A host that is behind the broker says that no time has passed; an older version has not said when it began."""
    record = partition_bytes(PartitionRecord(ID, 50, 50, {}, began))
    found = start({PARTITION_KEY: record}, log(50), written_ms=written_ms, now_ms=now_ms)
    assert found.expected_us == expected_us


def test_a_partition_that_nobody_read_starts_where_its_log_begins():
    found = start({}, log(None, begin=12))
    assert (found.position, found.decided, found.totals, found.lanes) == (12, 12, {}, {})


def test_what_was_decided_before_a_reset_is_known_after_it_and_after_a_restart():
    """Else what is read again would be counted twice."""
    found = start(both(50, decided=60), log(45), accept=True)
    assert (found.position, found.decided, found.decided_before) == (45, 45, 60)
    record = PartitionRecord(ID, 45, 45, {}, decided_before=60)
    assert start({PARTITION_KEY: partition_bytes(record)}, log(45)).decided_before == 60
    again = start({PARTITION_KEY: partition_bytes(record)}, log(40), accept=True)
    assert (again.position, again.decided_before) == (40, 60)
    assert start(both(50, decided=60), log(None, topic_id="another"), accept=True).decided_before == 0


def test_a_broker_that_forgot_the_offset_is_told_by_the_changelog():
    assert start(both(50), log(None)).position == 50


@pytest.mark.parametrize(
    ("newest", "of", "said"),
    [
        (both(50), log(49), "committed offset 49, the changelog says 50"),
        (both(50), log(51), "committed offset 51, the changelog says 50"),
        ({}, log(50), "the changelog says nothing"),
        ({b"acme": lane(7)}, log(50), "the changelog says nothing"),
        ({b"acme": lane(7)}, log(None), "1 lanes and no position"),
        (both(50), log(50, topic_id=OTHER), "its id changed"),
        (both(50), log(50, begin=60), "offsets 50 to 59 are no longer in the log"),
        (both(50), log(None, begin=60), "no longer in the log"),
        (both(50), log(50, end=49), "the log ends at 49"),
        (both(50, decided=60), log(50, end=59), "below 60 were already read"),
        (both(50) | {b"globex": b""}, log(50), "'globex' cannot be read"),
        (both(50) | {b"globex": b"{"}, log(50), "'globex' cannot be read"),
        (both(50) | {b"globex": b'{"epoch": "x"}'}, log(50), "'globex' cannot be read"),
        (both(50) | {b"\xff": lane()}, log(50), r"\\xff"),
        ({b"acme": lane(), PARTITION_KEY: b"{"}, log(50), "record of the partition cannot be read"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(newest, of, said):
    assert said in alarm(newest, of)


def test_a_log_that_holds_just_what_is_needed_is_read():
    assert start(both(50), log(50, begin=50)).position == 50
    assert start(both(50, decided=60), log(50, end=60)).decided == 60


def test_without_transactions_a_kill_may_leave_the_offset_behind_the_changelog():
    found = start(both(50, decided=60), log(45), transactions=False)
    assert (found.position, found.decided) == (45, 60)
    assert "committed offset 51" in alarm(both(50), log(51), transactions=False)


def test_where_the_broker_has_no_ids_nothing_is_said_of_them():
    assert start(both(50, topic_id=""), log(50)).topic_id == ID
    assert start(both(50), log(50, topic_id="")).position == 50


@pytest.mark.parametrize("key", [b"", b" ", b"\xff", b"\x00", b"c" * 300], ids=repr)
@pytest.mark.parametrize("value", [b"", b"{", b"\xff", b"[1]"])
def test_a_record_under_a_key_that_no_customer_has_is_foreign(key, value):
    found = start(both(50) | {key: value}, log(50))
    assert (found.position, found.lanes.keys(), found.foreign) == (50, {"acme"}, 1)


def test_a_lane_of_a_topic_that_is_no_more_is_forgotten():
    found = start(both(50) | {b"old": lane(9, OTHER)}, log(50))
    assert (found.lanes.keys(), found.forgotten) == ({"acme"}, {b"old"})


class TestAnAcceptedReset:
    def test_it_changes_nothing_where_nothing_is_wrong(self):
        found = start(both(50), log(50), accept=True)
        assert (found.lanes.keys(), found.forgotten, found.reset) == ({"acme"}, frozenset(), "")

    def test_it_forgets_the_lanes_and_names_their_keys(self):
        found = start(both(50) | {b"globex": lane()}, log(70), accept=True)
        assert (found.lanes, found.forgotten) == ({}, {b"acme", b"globex"})
        assert "the changelog says 50" in found.reset

    def test_it_keeps_the_totals_and_says_when_the_changelog_has_none(self):
        assert start(both(50), log(70), accept=True).totals == {"live": 30, "buffered": 20}
        assert not start(both(50), log(70), accept=True).uncounted
        assert start({}, log(70), accept=True).uncounted
        assert start({PARTITION_KEY: b"{"}, log(50), accept=True).uncounted
        assert start({}, log(None)).uncounted

    def test_it_remembers_how_far_the_topic_was_decided_before_it_went_back(self):
        assert start(both(50, decided=60), log(40), accept=True).decided_before == 60
        assert start(both(50, decided=60), log(50, topic_id=OTHER), accept=True).decided_before == 0

    @pytest.mark.parametrize(
        ("newest", "of", "position"),
        [
            (both(50), log(70), 70),
            ({}, log(70), 70),
            (both(50, decided=110), log(50), 50),
            (both(50), log(None, begin=60), 60),
            (both(50), log(50, end=40, begin=30), 30),
            (both(50), log(50, topic_id=OTHER), 0),
            ({}, log(70, begin=90), 90),
            ({b"acme": lane(7)}, log(None, begin=5), 5),
            (both(50) | {b"globex": b"{"}, log(50), 50),
            (both(50) | {b"globex": b"{"}, log(None), 50),
            ({PARTITION_KEY: b"{"}, log(50), 50),
        ],
    )
    def test_it_goes_on_from_the_committed_offset_where_there_is_something_to_read(self, newest, of, position):
        found = start(newest, of, accept=True)
        assert (found.position, found.decided, found.topic_id) == (position, position, of.topic_id)

    def test_a_record_that_cannot_be_read_is_forgotten_with_the_lanes(self):
        assert start(both(50) | {b"globex": b"{"}, log(50), accept=True).forgotten == {b"acme", b"globex"}
