"""A partition that has worked for a while, as an owner would have left it: rows, letters and a read model that agree."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime

from config.database.clock import database_now
from config.kafka import Replayed, topic_name
from outbox.letters.burial import Letter, bury
from tests.conftest import TOPIC_ID
from throttler.engine.output_transaction import INPUT
from throttler.engine.row_writer import GROUP
from throttler.lanes.read_model import LaneSnapshot, PartitionSnapshot, write_read_model
from throttler.messages import microseconds
from throttler.overflow.django import DjangoStore
from throttler.overflow.store import OverflowRow


class Worked:
    """Partition 0 after ten records: two live, six buffered of which three have left, one expired, one a letter."""

    def __init__(self, number: int = 0) -> None:
        self.now: datetime = database_now()
        self.number, self.day = number, self.now.date()
        self.totals = Counter(
            read=10, live=2, buffered=6, expired_on_arrival=1, parked=1, drained=2, expired=1, purged=0, lost=0
        )
        self.lanes = [self.lane("acme", 2, 4, 9), self.lane("beta", 1, 5, 6)]
        self.told = PartitionSnapshot(number, TOPIC_ID, 1, 10, 10, {}, complete=True)
        DjangoStore().store([self.row("acme", offset) for offset in (3, 4, 7, 9)])
        DjangoStore().store([self.row("beta", offset) for offset in (5, 6)])
        self.bury(8)
        self.report()

    def lane(self, customer: str, backlog: int, drained: int, seen: int) -> LaneSnapshot:
        told = {"tat": [0], "quota": []}
        oldest = microseconds(self.now) - 60_000_000
        return LaneSnapshot(customer, backlog, drained + 1, drained, seen, self.day, oldest, told)

    def row(self, customer: str, offset: int) -> OverflowRow:
        created = microseconds(self.now)
        return OverflowRow(self.number, customer, TOPIC_ID, offset, self.day, b"{}", b"", created, 0, f"n-{offset}")

    def bury(self, offset: int, value: bytes = b"{not json") -> Letter:
        record = Replayed(topic_name(INPUT), self.number, offset, 1_700_000_000_000, b"k", value)
        letter = Letter("throttler", "decode", "not_json", "no JSON", record, TOPIC_ID)
        bury([letter], topic_name(GROUP), self.now)
        return letter

    def report(self, **more: object) -> bool:
        told = replace(self.told, totals=dict(self.totals), lanes=self.lanes, **more)
        return write_read_model(told, topic_name(GROUP), topic_name(INPUT), self.now)
