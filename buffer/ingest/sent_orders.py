"""Which version of which order was sent, as the output topic says, whatever this database remembers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from buffer.events.models import Batch, BufferedEvent
from buffer.ingest.prepared import Key, Row
from buffer.streams import Stream
from config.database.chunks import batched
from config.database.rewrite import Rewrite
from config.database.upsert import uuid_text
from config.kafka import topic_name
from config.kafka.reader import Reader

MARK_SENT = Rewrite(
    BufferedEvent,
    key="order_id location_id source_partition source_offset",
    changes="batch_id",
    constants="status updated_at",
    fixed="stream",
    guard="old.status = 'pending'",
    prune="partition_key",
)


@dataclass(frozen=True)
class Version:
    """The delivery of an order that a published batch contains."""

    batch_id: uuid.UUID
    partition: int
    offset: int


@dataclass
class SentOrders:
    """`{(order, location): newest version sent}` of one incarnation of the input topic."""

    versions: dict[tuple[str, str], Version] = field(default_factory=dict)

    def find(self, order_id: str, location_id: str) -> Version | None:
        return self.versions.get((order_id, location_id))

    def comes_after(self, order_id: str, location_id: str, partition: int, offset: int) -> bool:
        """Whether this delivery is newer than what was sent, and so late."""
        version = self.find(order_id, location_id)
        return version is not None and version.partition == partition and offset > version.offset

    def late(self, rows: Iterable[Row]) -> set[tuple[int, int]]:
        """(partition, offset) of the deliveries that came after what was sent."""
        return {(row[4], row[5]) for row in rows if self.comes_after(row[1], row[2], row[4], row[5])}


def read_sent(
    stream: Stream, topic_id: str, progress: Callable[[int, int], None] = lambda done, total: None
) -> SentOrders:
    """Read the whole output topic; batches whose message has no positions (not ours) are ignored."""
    sent = SentOrders()
    done = 0
    with Reader(topic_name(stream.output)) as reader:
        for records in reader.batches():
            for record in records:
                for key, version in _versions(record, topic_id):
                    known = sent.versions.get(key)
                    if known is None or known.partition != version.partition or known.offset < version.offset:
                        sent.versions[key] = version
            done += len(records)
            progress(done, reader.total)
    return sent


def _versions(record: Any, topic_id: str) -> Iterator[tuple[tuple[str, str], Version]]:
    headers = {name: value.decode() for name, value in record.headers or ()}
    if "positions" not in headers or (topic_id and headers.get("topic_id") and headers["topic_id"] != topic_id):
        return
    message = msgspec.json.decode(record.value)
    batch_id = uuid.UUID(message["batch_id"])
    for order_id, (partition, offset) in zip(
        message["order_ids"], msgspec.json.decode(headers["positions"]), strict=True
    ):
        yield (order_id, message["location_id"]), Version(batch_id, partition, offset)


def mark_sent(stream: Stream, keys: Iterable[Key], sent: SentOrders, now: datetime) -> set[str]:
    """Mark those of these pending orders as sent whose very version was; returns the locations to recount."""
    found = [(key, version) for key in keys if (version := sent.find(key[1], key[2]))]
    changes = [(*key[1:], at.partition, at.offset, uuid_text(at.batch_id)) for key, at in found]
    months = sorted({key[0] for key, _ in found})
    constants = {"stream": stream.name, "status": BufferedEvent.Status.SENT.value, "updated_at": now}
    return {key[2] for key, _ in found} if MARK_SENT.run(changes, constants, months) else set()


def unknown_batches(sent: SentOrders) -> set[uuid.UUID]:
    """Published batches that this database does not know as sent, because it is older than the topic."""
    missing = {version.batch_id for version in sent.versions.values()}
    for ids in batched(sorted(missing), 500):
        missing.difference_update(Batch.objects.sent().filter(pk__in=ids).values_list("pk", flat=True))
    return missing
