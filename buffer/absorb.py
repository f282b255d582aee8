"""The statements of ingestion: events in, one guarded upsert a batch; then the buckets that really changed."""

from __future__ import annotations

from functools import cache

from buffer.models import Bucket, BufferedEvent
from buffer.positions import NEWER
from config.upsert import Column, Constant, Rewrite, Upsert

EVENTS = Upsert(
    BufferedEvent,
    columns=[
        Column("partition_key", "int"), Column("order_id"), Column("location_id"), Column("payload_hash"),
        Column("source_partition", "int"), Column("source_offset", "bigint"), Column("source_timestamp", "bigint"),
        Column("payload", "long"),
    ],
    constants=[
        Constant("stream"), Constant("status"), Constant("topic_id"), Constant("revision", "int"),
        Constant("seen_topic_id"), Constant("seen_hash"),
        Constant("created_at", "timestamp"), Constant("updated_at", "timestamp"),
    ],
    key=["partition_key", "stream", "order_id", "location_id"],
    update={
        "payload": "new.payload",
        "payload_hash": "new.payload_hash",
        "revision": "old.revision + 1",
        "topic_id": "new.topic_id",
        "source_partition": "new.source_partition",
        "source_offset": "new.source_offset",
        "source_timestamp": "new.source_timestamp",
        "updated_at": "new.updated_at",
    },
    # A redelivered v1 must not overwrite v2, and nothing overwrites what a batch has already taken.
    guard=f"old.status = 'pending' AND {NEWER}",
    token="token",
    returning=["partition_key", "order_id", "location_id", "revision", "source_partition"],
    prune="partition_key",
)  # fmt: skip

# What is read back of the rows that the upsert left alone.
STORED = [
    "partition_key", "order_id", "location_id", "status", "payload_hash", "topic_id", "source_partition",
    "source_offset", "source_timestamp", "seen_topic_id", "seen_partition", "seen_offset", "seen_timestamp",
    "seen_hash",
]  # fmt: skip

SEEN = Rewrite(
    BufferedEvent,
    key=[Column("partition_key", "int"), Column("order_id"), Column("location_id")],
    changes=[
        Column("seen_topic_id"), Column("seen_partition", "int"), Column("seen_offset", "bigint"),
        Column("seen_timestamp", "bigint"), Column("seen_hash"),
    ],
    fixed=["stream"],
    prune="partition_key",
)  # fmt: skip


@cache
def buckets(max_batch: int) -> Upsert:
    """The statement that adds arrivals to buckets and decides when each is due."""
    return Upsert(
        Bucket,
        columns=[Column("location_id"), Column("open_count", "int"), Column("source_partition", "int"),
                 Column("due_at", "timestamp")],
        constants=[
            Constant("stream"), Constant("topic"), Constant("sequence", "bigint"),
            Constant("first_arrival", "timestamp"), Constant("last_arrival", "timestamp"),
            Constant("idle_at", "timestamp"), Constant("cap_at", "timestamp"), Constant("urged"), Constant("held", "bool"),
        ],
        key=["stream", "location_id"],
        # MySQL assigns from left to right: what reads the old count comes before the count.
        update={
            # An arrival leaves an earlier look alone: the flusher then finds the bucket not idle and puts it
            # off. The index on due_at changes once per idle period instead of with every batch.
            "due_at": "CASE WHEN old.held THEN NULL "
                      f"WHEN old.urged = '' AND old.open_count + new.open_count >= {int(max_batch)} "
                      "AND (old.due_at IS NULL OR old.due_at > new.last_arrival) THEN new.last_arrival "
                      "WHEN old.due_at IS NULL THEN new.due_at ELSE old.due_at END",
            "first_arrival": "CASE WHEN old.open_count > 0 THEN old.first_arrival ELSE new.first_arrival END",
            "cap_at": "CASE WHEN old.open_count > 0 THEN old.cap_at ELSE new.cap_at END",
            "last_arrival": "new.last_arrival",
            "idle_at": "new.idle_at",
            "topic": "new.topic",
            "source_partition": "new.source_partition",
            "open_count": "old.open_count + new.open_count",
        },
    )  # fmt: skip
