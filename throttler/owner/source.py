"""What the throttler reads, and how its records are decoded: on the polling thread."""

from __future__ import annotations

from collections.abc import Sequence

from config.kafka import RecordBatch
from throttler.live.decide import Decoded
from throttler.live.decode import decode
from throttler.live.sending import INPUT
from throttler.live.storing import GROUP
from throttler.messages import gate


class Notifications:
    """The records of notifications-in."""

    name = group = GROUP
    topics = [INPUT]
    gathers = False

    def __init__(self) -> None:
        self._gate = gate()

    def prepare(self, batch: RecordBatch) -> Sequence[Decoded]:
        """Each record as a message or as a letter; never raises for bad input."""
        return [decode(record, self._gate, batch.topic_ids.get(record.topic, "")) for record in batch.records]
