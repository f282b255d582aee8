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

UNFINISHED = "state IN ('pending', 'processing', 'uncertain')"
MESSAGES = PartitionSpec(
    model="outbox.OutboxMessage",
    column="id",
    period="day",
    encoding="uuid7",
    ahead=14,
    back=1,
    keep_days_setting="OUTBOX_RETENTION_DAYS",
    unfinished=UNFINISHED,
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
    # An attempt says of a message whose worker is lost that it may have been sent.
    unfinished=f"message_id IN (SELECT id FROM outbox_outboxmessage WHERE {UNFINISHED})",  # noqa: S608 (a constant)
    before_drop="outbox.messages.retention.note_attempts",
    locks=("outbox.OutboxMessage", "outbox.FlowCounter"),
)
