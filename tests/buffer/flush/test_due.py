"""When a bucket is due: every rule with an injected clock."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from buffer.flush.claim import STALE, decide

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
IDLE, CAP = timedelta(minutes=5), timedelta(minutes=30)


@dataclass
class Bucket:
    first: datetime
    last: datetime
    open_count: int = 3
    urged: str = ""
    source_partition: int | None = 4

    @property
    def idle_at(self):
        return self.last + IDLE

    @property
    def cap_at(self):
        return self.first + CAP


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def verdict(bucket, heard=NOW, *, pressed=False, max_batch=500):
    return decide(bucket, NOW, {4: heard, 5: NOW}, max_batch, pressed)


@pytest.mark.parametrize(
    ("bucket", "reason"),
    [
        (Bucket(ago(6), ago(5)), "idle"),
        (Bucket(ago(6), ago(4.99)), ""),
        (Bucket(ago(30), ago(0)), "cap"),
        (Bucket(ago(29.99), ago(0)), ""),
        (Bucket(ago(1), ago(0), open_count=500), "size"),
        (Bucket(ago(1), ago(0), open_count=499), ""),
        (Bucket(ago(1), ago(0), urged="leftover"), "leftover"),
        (Bucket(ago(1), ago(0), urged="manual"), "manual"),
    ],
)
def test_idle_cap_size_and_urged(bucket, reason):
    assert verdict(bucket).reason == reason


def test_silence_is_not_idleness_while_the_consumer_is_behind():
    quiet = Bucket(ago(12), ago(10))
    assert verdict(quiet, heard=ago(0)).reason == "idle"
    assert verdict(quiet, heard=ago(6)).reason == ""
    assert verdict(quiet, heard=None).reason == ""


def test_idleness_is_judged_on_the_buckets_own_partition():
    quiet = Bucket(ago(12), ago(10), source_partition=9)
    assert verdict(quiet).reason == ""  # partition 5 is caught up, nobody knows about 9


@pytest.mark.parametrize("heard", [None, ago(60), ago(12), NOW])
def test_the_cap_counts_wherever_the_consumer_is(heard):
    assert verdict(Bucket(ago(31), ago(10)), heard=heard).reason == "cap"


def test_above_the_high_water_mark_everything_is_due():
    assert verdict(Bucket(ago(1), ago(0)), pressed=True).reason == "pressure"


def test_a_bucket_that_is_not_due_is_looked_at_again_and_never_after_its_cap():
    active = Bucket(ago(2), ago(1))
    assert verdict(active).look_again == active.idle_at
    near_cap = Bucket(ago(29.5), ago(1))
    assert verdict(near_cap).look_again == near_cap.cap_at
    unheard = Bucket(ago(12), ago(10))
    assert verdict(unheard, heard=None).look_again == NOW + STALE
    assert verdict(unheard, heard=NOW - timedelta(seconds=2), max_batch=500).reason == "idle"
