"""Backfill: lanes whose rows the store has lost are read again from the input."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.db import DataError, close_old_connections, connection, transaction

from config.database.clock import database_now
from config.database.queries import batched
from config.kafka import Record, Replayed, topic_name
from config.kafka.reader import Reader, TopicRecreated
from config.telemetry import metrics
from config.telemetry.logs import log
from outbox.letters.burial import Letter, bury
from throttler.engine.decisions import SOURCE, decode, is_forwarded, record_of, refusal, row_of
from throttler.engine.drain import Drain, Key
from throttler.engine.output_transaction import INPUT
from throttler.engine.partition import OwnedPartition
from throttler.engine.row_writer import GROUP, LOST
from throttler.lanes.read_model import is_superseded
from throttler.lanes.state import LaneState
from throttler.messages import gate
from throttler.overflow.store import LaneRange, OverflowRow, OverflowStore

# -- Reads lost rows again -----------------------------------------------------------------------------------
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


class Rereader:
    """A thread that repairs lanes, all that it was asked for at once; `found` holds what it did, for the owner's thread.

    Of a refused row that is itself: its message is a letter now.
    """

    def __init__(self, store: OverflowStore, process: str = "") -> None:
        self.store, self.process = store, process
        self.found: queue.SimpleQueue[Reread | RefusedRow] = queue.SimpleQueue()
        self._asked: queue.SimpleQueue[Sequence[Suspect | RefusedRow]] = queue.SimpleQueue()
        self._gate = gate()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="throttler-rereader", daemon=True)
        self._thread.start()

    def ask(self, asked: Sequence[Suspect | RefusedRow]) -> None:
        """Each lane once until it was answered, or its partition was given up; of a row again no second letter is made."""
        self._asked.put(asked)

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
        asked = list(self._asked.get())
        while not self._asked.empty():
            asked += self._asked.get()
        return list({(type(one), one.key): one for one in asked}.values())  # of one asked for twice the first is void

    def _done(self, asked: Sequence[Suspect | RefusedRow]) -> bool:
        suspects = [one for one in asked if isinstance(one, Suspect)]
        try:
            close_old_connections()
            for topic_id in {suspect.lane.topic_id for suspect in suspects}:
                self._repair([suspect for suspect in suspects if suspect.lane.topic_id == topic_id])
            self._bury_rows([one for one in asked if isinstance(one, RefusedRow)])
        except Exception as error:  # noqa: BLE001 (broker or database are away: the lanes stay suspended meanwhile)
            log.warning("rereading_failed", worker=GROUP, error=str(error).strip()[:300])
            connection.close()
            return False
        return True

    def _repair(self, suspects: Sequence[Suspect]) -> None:
        """Lanes of one topic.

        Of one that was created again nothing is repaired: the polling thread learns it, too, and gives up what was read.
        """
        try:
            stored = self._store_again(suspects)
        except TopicRecreated as error:
            log.warning("rereading_failed", worker=GROUP, error=str(error))
            return
        counts = self.store.counts([suspect.lane for suspect in suspects])
        missing = [max(0, suspect.backlog - count) for suspect, count in zip(suspects, counts, strict=True)]
        lanes = list(zip(suspects, missing, strict=True))
        # A letter for each lane, written once however often.
        self._write([(lost_letter(suspect.lane, gone), suspect.epoch) for suspect, gone in lanes if gone])
        for suspect, gone in lanes:
            log.warning(
                "overflow_rows_read_again", customer=suspect.lane.customer_id, partition=suspect.lane.partition,
                rows=stored[suspect.key], gone=gone,
            )  # fmt: skip
            self.found.put(Reread(suspect.lane, gone))

    def _store_again(self, suspects: Sequence[Suspect]) -> Counter[Key]:
        wanted, counts = {suspect.key: suspect for suspect in suspects}, Counter[Key]()
        rows: list[OverflowRow] = []
        for record in records_between(topic_name(INPUT), suspects[0].lane.topic_id, spans_of(suspects)):
            if row := self._row(record, wanted):
                rows.append(row)
                counts[row.partition, row.customer_id] += 1
            if len(rows) >= ROWS:
                self._put(rows)
                rows = []
        self._put(rows)
        metrics.THROTTLER_LOST_ROWS.inc(counts.total())
        return counts

    def _row(self, record: Record, wanted: Mapping[Key, Suspect]) -> OverflowRow | None:
        """The row of a record that waited in one of the lanes."""
        decoded = decode(record, self._gate, "")
        suspect = wanted.get((record.partition, decoded.message.customer_id)) if decoded.message else None
        if suspect is None or not suspect.lane.drained < record.offset <= suspect.lane.upto:
            return None
        if suspect.misplaced and not is_forwarded(record.headers):
            return None
        # Under the newest day: all that the log has from here on goes there, behind rows of whatever day that it has no longer.
        return row_of(decoded, suspect.lane.topic_id, suspect.lane.newest or suspect.lane.day)

    def _put(self, rows: Sequence[OverflowRow]) -> None:
        try:
            self.store.store(rows)
        except DataError:  # one of them is a letter, because the store would not take it the first time either
            for row in rows:
                with suppress(DataError):
                    self.store.store([row])

    def _bury_rows(self, refused: Sequence[RefusedRow]) -> None:
        topic = topic_name(INPUT)
        letters = []
        for each in refused:
            row = each.row
            letter = refusal(record_of(row, topic), "drain", each.reason, row.topic_id, row.notification_id)
            letters.append((letter, each.epoch))
        self._write(letters)
        for each in refused:
            self.found.put(each)

    def _write(self, letters: Sequence[tuple[Letter, int]]) -> None:
        """Those whose partition nobody else has taken over since that generation: we may have slept meanwhile."""
        for some in batched(letters, ROWS):
            with transaction.atomic():
                now = database_now()
                places = sorted({(letter.record.partition, epoch) for letter, epoch in some})
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
    spans: dict[int, tuple[int, int]] = {}
    for lane in (suspect.lane for suspect in suspects):
        first, last = spans.get(lane.partition, (lane.drained + 1, lane.upto))
        spans[lane.partition] = min(first, lane.drained + 1), max(last, lane.upto)
    return spans


def records_between(topic: str, topic_id: str, spans: Mapping[int, tuple[int, int]]) -> Iterable[Record]:
    """What the log still has between these offsets of each partition, both included; one connection for all.

    Raises TopicRecreated.
    """
    with Reader(topic, spans) as reader:
        reader.insist_on(topic_id)
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


# -- Lanes that stand until they are repaired ----------------------------------------------------------------
class Repairs:
    """What the drain has suspended and the rereader has in hand. One thread."""

    def __init__(self, drain: Drain, rereader: Rereader) -> None:
        self.drain, self.rereader = drain, rereader
        self._asked: dict[Key, LaneRange] = {}
        self._buried: dict[Key, OverflowRow] = {}  # on their way to the letters
        self._since: dict[Key, float] = {}  # when rows were missed, by the monotonic clock
        self.heard: Callable[[], float] = lambda: math.inf  # when the group was last known to have us

    def round(self, now: int) -> list[tuple[OwnedPartition, LaneState]]:
        """Ask for what is suspended, take up what was repaired; returns the lanes that lost messages for good."""
        if self.drain.suspended.keys() - self._asked.keys():
            self._ask(self.heard())
        for key, row in self.drain.refused.items():
            if self._buried.get(key) is not row:
                self._buried[key] = row
                epoch = self.drain.parts[row.partition].epoch
                self.rereader.ask([RefusedRow(row, self.drain.poisoned[row.partition, row.offset], epoch)])
        changed = []
        while not self.rereader.found.empty():
            answer = self.rereader.found.get()
            if isinstance(answer, RefusedRow):
                changed += self._pass_over(answer.row, now)
                continue
            key = (answer.lane.partition, answer.lane.customer_id)
            if self._asked.get(key) is answer.lane:
                del self._asked[key]
                changed += self._go_on(key, answer.gone, now)
        return changed

    def _pass_over(self, row: OverflowRow, now: int) -> list[tuple[OwnedPartition, LaneState]]:
        key = (row.partition, row.customer_id)
        if self._buried.get(key) is row:
            del self._buried[key]
        passed = self.drain.pass_over(key, row, now)
        return [passed] if passed else []

    def forget(self, numbers: Iterable[int]) -> None:
        gone = set(numbers)
        self._asked = {key: lane for key, lane in self._asked.items() if key[0] not in gone}
        self._buried = {key: row for key, row in self._buried.items() if key[0] not in gone}
        self._since = {key: since for key, since in self._since.items() if key[0] not in gone}

    def _ask(self, heard: float) -> None:
        """Not before the group has said since that the lanes are ours: whoever slept misses what others have drained."""
        suspects = []
        for key in self.drain.suspended.keys() - self._asked.keys():
            if self._since.setdefault(key, time.monotonic()) >= heard:
                continue
            part, lane = self.drain.find(key)
            if part and lane and lane.day:
                del self._since[key]
                had, expected = self.drain.suspended[key]
                log.error("overflow_rows_lost", customer=key[1], partition=key[0], found=had, expected=expected)
                # Rows on their way to the store are no suspects.
                upto, backlog = part.readable_upto(lane), lane.backlog - lane.waits
                place = part.number, lane.customer, part.topic_id
                asked = LaneRange(*place, lane.drained, upto, lane.day, backlog, lane.newest)
                self._asked[key] = asked
                suspects.append(Suspect(asked, backlog, bool(lane.misplaced), part.epoch))
        if suspects:
            self.rereader.ask(suspects)

    def _go_on(self, key: Key, gone: int, now: int) -> list[tuple[OwnedPartition, LaneState]]:
        part, lane = self.drain.find(key)
        changed = []
        if part and lane and gone:
            lane.lose(gone)
            part.totals["lost"] += gone
            changed = [(part, lane)]
        self.drain.resume(key, now)  # at last: it asks for a page of what waits then
        return changed
