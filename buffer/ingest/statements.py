"""The statements of ingestion: events in, one guarded upsert a batch."""

from __future__ import annotations

from buffer.events.models import BufferedEvent
from buffer.events.positions import NEWER
from config.database.rewrite import Rewrite
from config.database.upsert import Column, Constant, Upsert

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
