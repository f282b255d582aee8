"""Reads from the input again what the store has lost: a database restored from a backup, rows that outlived a TTL."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from django.db import DataError, close_old_connections, connection, transaction

from config.database.clock import database_now
from config.kafka import Replayed, topic_name
from config.kafka.reader import Reader
from config.telemetry import metrics
from config.telemetry.logs import log
from outbox.letters.burial import Letter, bury
from throttler.live.decide import is_forwarded
from throttler.live.decode import SOURCE, decode, row_of
from throttler.live.sending import INPUT
from throttler.live.storing import GROUP, LOST
from throttler.messages import gate
from throttler.overflow.store import LaneRange, OverflowRow, OverflowStore

PAUSE = 1.0  # seconds between tries
ROWS = 500  # of one statement


@dataclass(frozen=True)
class Suspect:
    """A lane whose store has fewer rows than `backlog` in the range (drained, seen]."""

    lane: LaneRange
    backlog: int
    misplaced: bool  # its customer belongs to another partition: only records with the mark waited here


@dataclass(frozen=True)
class Reread:
    """The store has again what the log still has of a range; `gone` messages are in neither."""

    lane: LaneRange
    gone: int


@dataclass
class Rereader:
    """A thread that repairs lanes, one partition at a time; `found` holds what it did, for the owner's thread."""

    store: OverflowStore
    found: queue.SimpleQueue[Reread] = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        self._asked: queue.SimpleQueue[Sequence[Suspect]] = queue.SimpleQueue()
        self._gate = gate()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="throttler-rereader", daemon=True)
        self._thread.start()

    def ask(self, suspects: Iterable[Suspect]) -> None:
        """Lanes of one partition, each once until it was answered."""
        self._asked.put(list(suspects))

    def close(self) -> None:
        self._ending.set()
        self._asked.put([])
        self._thread.join(2.0)

    def _work(self) -> None:
        while not self._ending.is_set():
            suspects = self._asked.get()
            while suspects and not self._ending.is_set() and not self._repaired(suspects):
                self._ending.wait(PAUSE)
        connection.close()

    def _repaired(self, suspects: Sequence[Suspect]) -> bool:
        try:
            close_old_connections()
            self._repair(suspects)
        except Exception as error:  # noqa: BLE001 (broker or database are away: the lanes stay suspended meanwhile)
            log.warning("rereading_failed", worker=GROUP, error=str(error).strip()[:300])
            connection.close()
            return False
        return True

    def _repair(self, suspects: Sequence[Suspect]) -> None:
        stored = self._store_again(suspects)
        for suspect in suspects:
            count = self.store.count(suspect.lane)
            gone = max(0, suspect.backlog - count)
            if gone:
                self._bury(suspect.lane, gone)
            log.warning(
                "overflow_rows_read_again", customer=suspect.lane.customer_id, partition=suspect.lane.partition,
                rows=stored.get(suspect.lane.customer_id, 0), gone=gone,
            )  # fmt: skip
            self.found.put(Reread(suspect.lane, gone))

    def _store_again(self, suspects: Sequence[Suspect]) -> dict[str, int]:
        wanted = {suspect.lane.customer_id: suspect for suspect in suspects}
        counts = dict.fromkeys(wanted, 0)
        rows: list[OverflowRow] = []
        for record in records_between(
            topic_name(INPUT), suspects[0].lane.partition,
            min(one.lane.drained for one in suspects) + 1, max(one.lane.upto for one in suspects),
        ):  # fmt: skip
            if row := self._row(record, wanted):
                rows.append(row)
                counts[row.customer_id] += 1
            if len(rows) >= ROWS:
                self._put(rows)
                rows = []
        self._put(rows)
        metrics.THROTTLER_LOST_ROWS.inc(sum(counts.values()))
        return counts

    def _row(self, record: Any, wanted: dict[str, Suspect]) -> OverflowRow | None:
        """The row of a record that waited in one of the lanes."""
        decoded = decode(record, self._gate, "")
        suspect = wanted.get(decoded.message.customer_id) if decoded.message else None
        if suspect is None or not suspect.lane.drained < record.offset <= suspect.lane.upto:
            return None
        if suspect.misplaced and not is_forwarded(record.headers):
            return None
        return row_of(decoded, suspect.lane.topic_id, suspect.lane.day)

    def _put(self, rows: Sequence[OverflowRow]) -> None:
        try:
            self.store.store(rows)
        except DataError:  # one of them is a letter, because the store would not take it the first time either
            for row in rows:
                with suppress(DataError):
                    self.store.store([row])

    def _bury(self, lane: LaneRange, gone: int) -> None:
        text = (
            f"{gone} messages of {lane.customer_id} between offsets {lane.drained + 1} and {lane.upto} are neither in "
            "the store nor in the log any more"
        )
        place = Replayed(topic_name(INPUT), lane.partition, lane.drained + 1, -1, lane.customer_id.encode(), None)
        letter = Letter(SOURCE, LOST, "messages_lost", text, place, lane.topic_id, business_key=lane.customer_id)
        with transaction.atomic():
            bury([letter], topic_name(GROUP), database_now())


def records_between(topic: str, partition: int, first: int, last: int) -> Iterable[Any]:
    """What the log still has of these offsets, both included."""
    with Reader(topic, [partition]) as reader:
        for tp in reader.tps:
            start = max(first, reader.begins[tp])
            if start > last:
                return
            reader.consumer.seek(tp, start)
        while reader.reading:
            for records in reader.step(0.5).values():
                yield from (record for record in records if first <= record.offset <= last)
                if records[-1].offset >= last:
                    return
