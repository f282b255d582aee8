"""The worker of the ledger, as its command starts it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime

from django.db import transaction

from buffer.ledger.handler import Track
from buffer.ledger.statements import NAME
from config.kafka import Mark, Replayed
from config.kafka.positions import TopicPartition
from config.kafka.runtime import Consumer
from config.kafka.runtime.writers import parallel_writers
from outbox.bookkeeping.watermarks import Watermarks
from outbox.letters.burial import Letter, bury


class AlarmedWatermarks(Watermarks):
    """Watermarks that leave a dead letter when a partition stops, because records may be gone."""

    def stop(self, group: str, alarms: Mapping[TopicPartition, str], now: datetime) -> None:
        with transaction.atomic():
            super().stop(group, alarms, now)
            marks = self.load(group, sorted({topic for topic, _ in alarms}))
            letters = []
            for tp, alarm in alarms.items():
                mark = marks.get(tp, Mark("", 0))
                place = Replayed(*tp, mark.next_offset, -1, None, None)
                letters.append(Letter(NAME, "position", "partition_stopped", alarm, place, mark.topic_id))
            bury(letters, group, now)


def track(
    stop: threading.Event, *, accept_reset: bool = False, once: bool = False, until_idle: float | None = None
) -> None:
    """Read all stock topics until `stop`."""
    positions = AlarmedWatermarks()
    consumer = Consumer(Track(), positions, stop, accept_reset=accept_reset, writers=parallel_writers())
    consumer.run(once=once, until_idle=until_idle)
