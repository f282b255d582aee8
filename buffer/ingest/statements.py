"""The statements of ingestion: events in, one guarded upsert a batch."""

from __future__ import annotations

from buffer.events.models import BufferedEvent
from buffer.events.positions import NEWER
from config.database.rewrite import Rewrite
from config.database.upsert import Upsert, new

EVENTS = Upsert(
    BufferedEvent,
    columns=("partition_key order_id location_id payload_hash source_partition source_offset source_timestamp payload"),
    constants="stream status topic_id revision seen_topic_id seen_hash created_at updated_at",
    key="partition_key stream order_id location_id",
    update={
        "revision": "old.revision + 1",
        **new("payload payload_hash topic_id source_partition source_offset source_timestamp updated_at"),
    },
    # A redelivered v1 must not overwrite v2, and nothing overwrites what a batch has claimed.
    guard=f"old.status = 'pending' AND {NEWER}",
    token="token",
    returning="partition_key order_id location_id revision source_partition",
    prune="partition_key",
)

# Both places, under the payload that the row was classified by.
SEEN = Rewrite(
    BufferedEvent,
    key="partition_key order_id location_id",
    changes=(
        "payload_hash topic_id source_partition source_offset source_timestamp "
        "seen_topic_id seen_partition seen_offset seen_timestamp seen_hash"
    ),
    fixed="stream",
    guard="old.payload_hash = new.payload_hash",
    prune="partition_key",
)
