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
    unfinished="status IN ('open', 'requeued')",
)

MESSAGES = PartitionSpec(
    model="outbox.OutboxMessage",
    column="id",
    period="day",
    encoding="uuid7",
    ahead=14,
    back=1,
    keep_days_setting="OUTBOX_RETENTION_DAYS",
    unfinished="state IN ('pending', 'processing', 'uncertain')",
    before_drop="outbox.messages.retention.before_drop",
    locks=("outbox.FlowCounter",),
    archive_setting="OUTBOX_ARCHIVE",
)
ATTEMPTS = PartitionSpec(
    model="outbox.DeliveryAttempt",
    column="id",
    period="day",
    encoding="uuid7",
    ahead=14,
    back=1,
    keep_days_setting="ATTEMPT_RETENTION_DAYS",
)
