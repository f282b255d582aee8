"""What the Kafka handlers of all flows share: how a record becomes a letter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction

from config.kafka import Mark, Record, RecordBatch, Replayed, Tally, topic_name
from config.kafka.positions import TopicPartition
from config.kafka.runtime import Handler
from config.partitions import ensure_partitions
from config.telemetry.redaction import said
from outbox.bookkeeping.watermarks import Watermarks
from outbox.letters.burial import STOPPED, Letter, bury


class AlarmedWatermarks(Watermarks):
    """Watermarks that leave a dead letter where a partition stops, because records may be gone."""

    def __init__(self, source: str) -> None:
        self.source = source

    def stop(self, group: str, alarms: Mapping[TopicPartition, str], now: datetime) -> None:
        with transaction.atomic():
            super().stop(group, alarms, now)
            marks = self.load(group, sorted({topic for topic, _ in alarms}))
            letters = []
            for tp, alarm in alarms.items():
                mark = marks.get(tp, Mark("", 0))
                place = Replayed(*tp, mark.next_offset, -1, None, None)
                letters.append(Letter(self.source, STOPPED, "partition_stopped", alarm, place, mark.topic_id))
            bury(letters, group, now)


def known_before(letters: Sequence[Letter], new: Sequence[Letter]) -> list[Letter]:
    """The letters that `bury` did not write, because an earlier reading of their records did."""
    written = set(map(id, new))
    return [letter for letter in letters if id(letter) not in written]


class LetterHandler(Handler):
    """Base of a flow's Kafka handler: what it cannot handle becomes a letter, and missing partitions are made."""

    source: str  # the flow its letters belong to

    def letter(
        self,
        batch: RecordBatch,
        record: Record,
        step: str,
        reason: str,
        text: str,
        key: str = "",
        **more: Any,
    ) -> Letter:
        """A letter about `record`, not buried yet; `key` is the order or reference it is about."""
        topic_id = batch.topic_ids.get(record.topic, "")
        return Letter(
            self.source, step, reason, text, record, topic_id, batch.letter_revision, business_key=key, **more
        )

    def park(self, batch: RecordBatch, record: Record, error: BaseException, trace: str, now: datetime) -> None:
        """Bury the one record that the database refused although the gate let it through."""
        told = {"error_class": type(error).__name__, "traceback": trace}
        letter = self.letter(batch, record, "store", "database_refused", said(error), **told)
        new = len(bury([letter], topic_name(self.group), now))
        batch.tally = Tally(parked=new)
        self.count_parked(batch, record, now, new=bool(new))

    def count_parked(self, batch: RecordBatch, record: Record, now: datetime, *, new: bool) -> None:
        """Count a record that `park` has buried, where the flow accounts for each record.

        One that was a letter before is a repeat.
        """

    def repair(self) -> None:
        ensure_partitions()
