"""After a restore: records are read again and compared with what was sent since the backup."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from buffer.ingest.sent_orders import SentOrders
from config.kafka import RecordBatch
from config.kafka.positions import TopicPartition


@dataclass
class Regain:
    """What was sent, and the offsets up to which an earlier life of the database had read. Pure."""

    sent: SentOrders
    gaps: dict[TopicPartition, int]

    def split(self, batch: RecordBatch) -> list[RecordBatch]:
        """Records up to the version that was sent, and records after it: those are late."""
        rows = (row for rows in batch.prepared.records.values() for row, _record in rows)
        late = self.sent.late(rows)
        parts: tuple[list, list] = ([], [])
        for record in batch.records:
            parts[(record.partition, record.offset) in late].append(record)
        return [RecordBatch(part, batch.topic_ids, revision=batch.revision) for part in parts]

    def close(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Close the gaps that end below `ends`; True when none is left."""
        for tp in [tp for tp, end in list(self.gaps.items()) if ends.get(tp, 0) >= end]:
            self.gaps.pop(tp, None)  # another writer may close one meanwhile
        return not self.gaps
