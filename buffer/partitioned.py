"""Which tables of this app are partitioned by time, and what keeps a partition alive."""

from buffer.events.status_field import UNSENT
from config.partitions import PartitionSpec

EVENTS = PartitionSpec(
    model="buffer.BufferedEvent",
    column="partition_key",
    period="month",
    encoding="yyyymm",
    # One more than ingestion accepts: a new month begins before the day's rotation has run.
    ahead=4,
    keep_months_setting="BUFFER_RETENTION_MONTHS",
    unfinished=f"status = 'pending' OR status = 'claimed' AND buffer_bufferedevent.batch_id IN ({UNSENT})",
    before_drop="buffer.retention.count_dropped",
    locks=("outbox.FlowCounter", "buffer.Batch"),
)
