"""Which tables of this app are partitioned by time."""

from config.partitions import PartitionSpec

DELIVERIES = PartitionSpec(
    model="notifications.Delivery",
    column="message_id",
    period="day",
    encoding="uuid7",
    ahead=14,
    # A message may be sent days after it was written: its day must be there as long as the outbox keeps it.
    keep_days_setting="OUTBOX_RETENTION_DAYS",
)
