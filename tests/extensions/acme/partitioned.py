"""Visits by day."""

from spillway_ext import PartitionSpec

VISITS = PartitionSpec(
    model="acme.Visit", column="id", period="day", encoding="uuid7", ahead=7, keep_days_setting="ACME_KEEP_DAYS"
)
