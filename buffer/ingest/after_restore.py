"""After a restore: records are read again and compared with what the output topic says was sent."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

import msgspec

from buffer.events.arrivals import OrderKey
from buffer.events.models import Batch, BufferedEvent
from buffer.streams import Stream
from config.database.queries import batched
from config.database.upsert import Rewrite, uuid_text
from config.kafka import Record, RecordBatch, topic_name
from config.kafka.positions import TopicPartition
from config.kafka.reader import Reader
from config.payload import Excerpt
from config.telemetry.logs import RowIds, log, log_committed


# -- What was sent -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Version:
    """The delivery of an order that a published batch contains."""

    batch_id: uuid.UUID
    partition: int
    offset: int


@dataclass
class SentOrders:
    """`{(order, location): newest version sent}` since the input topic was created; `foreign` records were skipped."""

    versions: dict[tuple[str, str], Version] = field(default_factory=dict)
    foreign: int = 0

    def find(self, order_id: str, location_id: str) -> Version | None:
        return self.versions.get((order_id, location_id))

    def comes_after(self, order_id: str, location_id: str, partition: int, offset: int) -> bool:
        """Whether this delivery is newer than what was sent, and so late."""
        version = self.find(order_id, location_id)
        return version is not None and version.partition == partition and offset > version.offset


Whole = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]  # as a column takes it
POSITIONS = msgspec.json.Decoder(list[tuple[Whole, Whole]])


def read_sent(stream: Stream, topic_id: str) -> SentOrders:
    """Read the whole output topic; what is none of our batches is skipped, counted and logged."""
    sent = SentOrders()
    with Reader(topic_name(stream.output)) as reader:
        for records in reader.batches():
            for record in records:
                if (versions := versions_in(stream, record, topic_id)) is None:
                    sent.foreign += 1
                    # Anybody may write into the topic. A batch of it that nobody can unpack may have been ours.
                    if isinstance(record.value, Excerpt):
                        place = f"{record.topic}/{record.partition}/{record.offset}"
                        log.error("sent_batch_unreadable", place=place, error=record.value.lost)
                for key, version in versions or ():
                    known = sent.versions.get(key)
                    if known is None or known.partition != version.partition or known.offset < version.offset:
                        sent.versions[key] = version
    if sent.foreign:
        log.warning("foreign_records_skipped", topic=topic_name(stream.output), records=sent.foreign)
    return sent


def versions_in(stream: Stream, record: Record, topic_id: str) -> Sequence[tuple[tuple[str, str], Version]] | None:
    """The orders of a published batch; empty if it is older than the input topic. None: it is no batch of ours."""
    headers = dict(record.headers or ())
    try:
        batch, positions = stream.sent.decode(record.value or b""), POSITIONS.decode(headers.get("positions") or b"")
        known = (headers.get("topic_id") or b"").decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if len(batch.order_ids) != len(positions) or headers.get("batch_id") != str(batch.batch_id).encode():
        return None
    if topic_id and known and known != topic_id:
        return ()
    return [
        ((order_id, batch.location_id), Version(batch.batch_id, partition, offset))
        for order_id, (partition, offset) in zip(batch.order_ids, positions, strict=True)
    ]


MARK_SENT = Rewrite(
    BufferedEvent,
    key="order_id location_id source_partition source_offset",
    changes="batch_id",
    constants="status updated_at",
    fixed="stream",
    guard="old.status = 'pending'",
    prune="partition_key",
)


def mark_sent(stream: Stream, keys: Iterable[OrderKey], sent: SentOrders, now: datetime) -> set[str]:
    """Mark those of these pending orders as sent whose very version was; returns the locations to recount."""
    versions = [(key, version) for key in keys if (version := sent.find(key[1], key[2]))]
    changes = [(*key[1:], at.partition, at.offset, uuid_text(at.batch_id)) for key, at in versions]
    months = sorted({key[0] for key, _ in versions})
    constants = {"stream": stream.name, "status": BufferedEvent.Status.SENT.value, "updated_at": now}
    if not (marked := MARK_SENT.run(changes, constants, months)):
        return set()
    ids = RowIds([key for key, _ in versions], order_id=1)
    log_committed("orders_marked_sent", stream=stream.name, orders=marked, looked_at=len(versions), ids=ids)
    return {key[2] for key, _ in versions}


def unknown_batches(sent: SentOrders) -> set[uuid.UUID]:
    """Published batches that this database does not know as sent, because it is older than the topic."""
    missing = {version.batch_id for version in sent.versions.values()}
    for ids in batched(sorted(missing), 500):
        missing.difference_update(Batch.objects.sent().filter(pk__in=ids).values_list("pk", flat=True))
    return missing


# -- Reading again -----------------------------------------------------------------------------------------
@dataclass
class Regain:
    """What was sent, and the offsets up to which an earlier life of the database had read. Pure.

    All places are in the topic that has this id; "" where the broker has none.
    """

    sent: SentOrders
    gaps: dict[TopicPartition, int]
    topic_id: str = ""

    def is_about(self, topic_id: str) -> bool:
        """Whether a place in the topic that has this id is one of these."""
        return not self.topic_id or topic_id in ("", self.topic_id)

    def split(self, batch: RecordBatch) -> list[RecordBatch]:
        """Records up to the version that was sent, and records after it: those are late."""
        late = {
            (record.partition, record.offset)
            for (_month, order_id, location_id), rows in batch.prepared.records.items()
            for _row, record in rows
            if self.sent.comes_after(order_id, location_id, record.partition, record.offset)
        }
        parts: tuple[list[Record], list[Record]] = ([], [])
        for record in batch.records:
            parts[(record.partition, record.offset) in late].append(record)
        return [RecordBatch(part, batch.topic_ids, revision=batch.revision) for part in parts]

    def close(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Close the gaps that end below `ends`; True when none is left."""
        for tp in [tp for tp, end in list(self.gaps.items()) if ends.get(tp, 0) >= end]:
            self.gaps.pop(tp, None)  # another writer may close one meanwhile
        return not self.gaps
