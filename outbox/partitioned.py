"""Which tables of this app are partitioned by time, and what keeps a partition alive."""

from config.partitions import PartitionSpec

DEAD_LETTERS = PartitionSpec(
    model="outbox.DeadLetter",
    column="id",
    period="month",
    encoding="uuid7",
    # Ids are made from the clock: no letter is ever written to a month long past.
    back=1,
    keep_days_setting="DEAD_LETTER_RETENTION_DAYS",
    unfinished="status = 'open'",
)
