"""Which tables of this app are partitioned by time, and what keeps a partition alive."""

from __future__ import annotations

from config.partitions import PartitionSpec

OVERFLOW = PartitionSpec(
    model="throttler.OverflowMessage",
    column="day",
    period="day",
    encoding="date",
    keep_days_setting="THROTTLER_BUFFER_DAYS",
    before_drop="throttler.retention.keep_what_waits",
    locks=("throttler.Lane", "throttler.LaneOwner", "throttler.LanePartition"),
)
