"""Reads from the input again what the store has lost: a database restored from a backup, rows that outlived a TTL."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from django.db import DataError, close_old_connections, connection, transaction

from config.database.chunks import batched
from config.database.clock import database_now
from config.kafka import Replayed, topic_name
from config.kafka.reader import Reader
from config.telemetry import metrics
from config.telemetry.logs import log
from outbox.letters.burial import Letter, bury
from throttler.lanes.mirror import is_superseded
from throttler.live.decide import is_forwarded
from throttler.live.decode import SOURCE, decode, record_of, refusal, row_of
from throttler.live.drain import Key
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
    epoch: int = 0  # the generation in which its partition was ours

    @property
    def key(self) -> Key:
        return self.lane.partition, self.lane.customer_id


@dataclass(frozen=True)
class Reread:
    """The store has again what the log still has of a range; `gone` messages are in neither."""

    lane: LaneRange
    gone: int


@dataclass(frozen=True)
class RefusedRow:
    """A buffered message that the broker never takes."""

    row: OverflowRow
    reason: str
    epoch: int = 0

    @property
    def key(self) -> tuple[int, int]:
        return self.row.partition, self.row.offset


@dataclass(frozen=True)
class Buried:
    """The message of a row is a letter: the broker never takes it."""

    row: OverflowRow


@dataclass
class Rereader:
    """A thread that repairs lanes, all that it was asked for at once; `found` holds what it did, for the owner's thread."""

    store: OverflowStore
    process: str = ""
    found: queue.SimpleQueue[Reread | Buried] = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        self._asked: queue.SimpleQueue[Sequence[Suspect | RefusedRow]] = queue.SimpleQueue()
        self._gate = gate()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="throttler-rereader", daemon=True)
        self._thread.start()

    def ask(self, suspects: Iterable[Suspect]) -> None:
        """Each lane once until it was answered, or its partition was given up."""
        self._asked.put(list(suspects))

    def bury(self, row: OverflowRow, reason: str, epoch: int = 0) -> None:
        """Make a letter of a message that the broker never takes; the same one again makes no second."""
        self._asked.put([RefusedRow(row, reason, epoch)])

    def close(self) -> None:
        self._ending.set()
        self._asked.put([])
        self._thread.join(1.0)

    def _work(self) -> None:
        while not self._ending.is_set():
            asked = self._next()
            while asked and not self._ending.is_set() and not self._done(asked):
                self._ending.wait(PAUSE)
        connection.close()

    def _next(self) -> list[Suspect | RefusedRow]:
        """All that was asked for meanwhile: each reading costs a connection and the range of all its lanes."""
        found = list(self._asked.get())
        while not self._asked.empty():
            found += self._asked.get()
        return list({(type(one), one.key): one for one in found}.values())  # of one asked for twice the first is void

    def _done(self, asked: Sequence[Suspect | RefusedRow]) -> bool:
        suspects = [one for one in asked if isinstance(one, Suspect)]
        try:
            close_old_connections()
            if suspects:
                self._repair(suspects)
            self._bury_rows([one for one in asked if isinstance(one, RefusedRow)])
        except Exception as error:  # noqa: BLE001 (broker or database are away: the lanes stay suspended meanwhile)
            log.warning("rereading_failed", worker=GROUP, error=str(error).strip()[:300])
            connection.close()
            return False
        return True

    def _repair(self, suspects: Sequence[Suspect]) -> None:
        stored = self._store_again(suspects)
        counts = self.store.counts([suspect.lane for suspect in suspects])
        answers = [
            Reread(suspect.lane, max(0, suspect.backlog - count))
            for suspect, count in zip(suspects, counts, strict=True)
        ]
        pairs = zip(suspects, answers, strict=True)
        # A letter for each lane, written once however often.
        self._write([(lost_letter(one.lane, one.gone), suspect.epoch) for suspect, one in pairs if one.gone])
        for suspect, answer in zip(suspects, answers, strict=True):
            log.warning(
                "overflow_rows_read_again", customer=suspect.lane.customer_id, partition=suspect.lane.partition,
                rows=stored[suspect.key], gone=answer.gone,
            )  # fmt: skip
            self.found.put(answer)

    def _store_again(self, suspects: Sequence[Suspect]) -> Counter[Key]:
        wanted, counts = {suspect.key: suspect for suspect in suspects}, Counter[Key]()
        rows: list[OverflowRow] = []
        for record in records_between(topic_name(INPUT), spans_of(suspects)):
            if row := self._row(record, wanted):
                rows.append(row)
                counts[row.partition, row.customer_id] += 1
            if len(rows) >= ROWS:
                self._put(rows)
                rows = []
        self._put(rows)
        metrics.THROTTLER_LOST_ROWS.inc(counts.total())
        return counts

    def _row(self, record: Any, wanted: Mapping[Key, Suspect]) -> OverflowRow | None:
        """The row of a record that waited in one of the lanes."""
        decoded = decode(record, self._gate, "")
        suspect = wanted.get((record.partition, decoded.message.customer_id)) if decoded.message else None
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

    def _bury_rows(self, refused: Sequence[RefusedRow]) -> None:
        topic = topic_name(INPUT)
        self._write([
            (refusal(record_of(one.row, topic), "drain", one.reason, one.row.topic_id), one.epoch) for one in refused
        ])  # fmt: skip
        for one in refused:
            self.found.put(Buried(one.row))

    def _write(self, letters: Sequence[tuple[Letter, int]]) -> None:
        """Those whose partition nobody else has taken over since that generation: we may have slept meanwhile."""
        for some in batched(letters, ROWS):
            with transaction.atomic():
                now = database_now()
                places = {(letter.record.partition, epoch) for letter, epoch in some}
                gone = {place for place in places if is_superseded(*place, self.process, now)}
                ours = [letter for letter, epoch in some if (letter.record.partition, epoch) not in gone]
                bury(ours, topic_name(GROUP), now)


def lost_letter(lane: LaneRange, gone: int) -> Letter:
    """It stands for all messages of a lane that are gone."""
    text = (
        f"{gone} messages of {lane.customer_id} between offsets {lane.drained + 1} and {lane.upto} are neither in "
        "the store nor in the log any more"
    )
    place = Replayed(topic_name(INPUT), lane.partition, lane.drained + 1, -1, lane.customer_id.encode(), None)
    about: dict[str, Any] = {"business_key": lane.customer_id, "template": text.replace(lane.customer_id, "…")}
    return Letter(SOURCE, LOST, "messages_lost", text, place, lane.topic_id, **about)


def spans_of(suspects: Iterable[Suspect]) -> dict[int, tuple[int, int]]:
    """The first and the last offset of each partition in which any of them waits."""
    found: dict[int, tuple[int, int]] = {}
    for lane in (suspect.lane for suspect in suspects):
        first, last = found.get(lane.partition, (lane.drained + 1, lane.upto))
        found[lane.partition] = min(first, lane.drained + 1), max(last, lane.upto)
    return found


def records_between(topic: str, spans: Mapping[int, tuple[int, int]]) -> Iterable[Any]:
    """What the log still has between these offsets of each partition, both included; one connection for all."""
    with Reader(topic, spans) as reader:
        for tp in reader.tps:
            first, last = spans[tp.partition]
            if last < reader.begins[tp]:
                reader.drop([tp.partition])
            elif tp in reader.reading:
                reader.consumer.seek(tp, max(first, reader.begins[tp]))
        while reader.reading:
            for number, records in reader.step(0.5).items():
                first, last = spans[number]
                yield from (record for record in records if first <= record.offset <= last)
                if records[-1].offset >= last:
                    reader.drop([number])
