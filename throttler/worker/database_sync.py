"""Once a second beside the owner: customers' rates, the database's time, the read model, our part of the rate of all."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from django.db import close_old_connections, connection, transaction

from config.database.clock import database_now
from config.kafka import topic_name
from config.kafka.consumer.writer import LogEndSeen
from config.kafka.positions import LogEnd, TopicPartition
from config.telemetry import metrics
from config.telemetry.logs import log
from outbox.letters.burial import AlarmedWatermarks
from throttler.customers.policy_cache import changed_terms
from throttler.engine.decisions import SOURCE
from throttler.engine.output_transaction import INPUT
from throttler.engine.row_writer import GROUP
from throttler.lanes.models import OutputDivision
from throttler.lanes.read_model import (
    PartitionSnapshot,
    Recalled,
    create_first,
    is_superseded,
    known_of,
    report_owner,
    take_name,
    write_read_model,
)
from throttler.limits.output_rate import OutputLimiter
from throttler.limits.shares import PARTS, Assigned, Divider, Division, OutputShare, ShareEntry
from throttler.worker.owner import PartitionOwner, SteadyClock

# -- The record by which owners divide the output rate -------------------------------------------------------
ONE_RECORD = 1  # there is one record


def read_division() -> Division:
    """The record as it is now; without one, nobody has written yet."""
    row = OutputDivision.objects.filter(pk=ONE_RECORD).values_list("version", "entries").first()
    if row is None:
        return Division()
    version, entries = row
    return Division(version, {name: _entry(entry) for name, entry in entries.items()})


def write_division(proposed: Division) -> bool:
    """Put it in the place of the version before; False: somebody else was first, and nothing was changed."""
    entries = {name: _plain(entry) for name, entry in proposed.entries.items()}
    row = OutputDivision.objects.filter(pk=ONE_RECORD, version=proposed.version - 1)
    if row.update(version=proposed.version, entries=entries):
        return True
    return proposed.version == 1 and create_first(OutputDivision, pk=ONE_RECORD, version=1, entries=entries)


def _entry(entry: dict[str, Any]) -> ShareEntry:
    demand = tuple((want, weight) for want, weight in entry["demand"])
    return ShareEntry(entry["process"], entry["basis"], entry["share"], tuple(entry["partitions"]), demand)


def _plain(entry: ShareEntry) -> dict[str, object]:
    return {
        "process": entry.process, "basis": entry.basis, "share": entry.share, "partitions": list(entry.partitions),
        "demand": [list(bucket) for bucket in entry.demand],
    }  # fmt: skip


# -- Our part of the output rate, asked for each second ------------------------------------------------------
TRIES = 5  # to be the next writer; then in a second
NEVER = float("-inf")


class GroupStanding:
    """Told by the polling thread what the group has given us; says what we may claim of it."""

    def __init__(self, share: OutputShare, clock: SteadyClock) -> None:
        self.share, self.clock = share, clock
        self.heard: Callable[[], float] = lambda: NEVER  # when the group answered last, by the monotonic clock
        self._before, self._heard_us = Assigned(), 0
        self.released()

    def released(self) -> None:
        """Before the first join, and when the group has taken everything: nothing is ours until the next join."""
        if self.share.standing.since:
            self._before = self.share.standing
        self.share.standing = Assigned(confirmed_us=self.clock.reading())

    def assigned(self, numbers: set[int], generation: int) -> None:
        joined = self.share.standing
        self.share.standing = joined.assigned(numbers, generation, self._before, self.clock.reading())

    def confirmed(self) -> Assigned | None:
        """Our partitions, if the group has confirmed lately that they are ours."""
        heard = self.heard()  # before the partitions: they are those of then, or of a join that ended later
        standing = self.share.standing
        if heard > NEVER:
            self._heard_us = max(self._heard_us, self.clock.of(heard))
        confirmed_us = max(standing.confirmed_us, self._heard_us)
        lately = self.clock.reading() < confirmed_us + self.share.sure_us
        return standing if standing.since and lately else None


class Sharing:
    """For the thread of `DatabaseSync`. A database that does not answer leaves us what we have, for as long as it holds."""

    def __init__(
        self, name: str, output: OutputLimiter, clock: SteadyClock,
        read: Callable[[], Division] = read_division, write: Callable[[Division], bool] = write_division,
    ) -> None:  # fmt: skip
        self.share, self.meter, self.clock, self.read, self.write = output.share, output.meter, clock, read, write
        self.group, rate = GroupStanding(output.share, clock), output.rate
        thousandths = rate.limit * 1_000_000_000 // rate.period_us
        self.divider = Divider(name, uuid4().hex, output.share.partitions, max(thousandths, 1))

    def round(self) -> None:
        """Look at the record, and ask for our part of what is free."""
        for _ in range(TRIES):
            asked = self.clock.reading()
            division = self.read()
            self.divider.saw(division, asked, self.clock.reading())
            proposed = self._proposal(division)
            if proposed is None:
                return
            part = proposed.entries[self.divider.name].share
            self.share.ask(part, self.clock.reading())
            self.divider.wrote()
            if self.write(proposed):
                self.share.granted(part, asked)
                metrics.set_own(metrics.THROTTLER_OUTPUT_SHARE, part / PARTS)
                return

    def leave(self) -> None:
        """We send nothing any more: the others may have our part at once."""
        for _ in range(TRIES):
            left = self.divider.left(self.read())
            if left is None or self.write(left):
                return

    def _proposal(self, division: Division) -> Division | None:
        standing = self.group.confirmed()
        if standing is None:
            return None
        return self.divider.propose(division, standing.since.keys(), self.meter.demand, self.clock.reading())


# -- Once a second beside the owner, on a thread of its own --------------------------------------------------
TERMS_EACH, CLOCK_EACH, SHARE_EACH = 2.0, 30.0, 1.0  # seconds
SNAPSHOT = 2.0  # seconds to wait for one: a transaction may take longer, and then it comes with the next round


class DatabaseSync:
    """The database's part of an owner that is not on any message's way: with the database away, all of it waits."""

    def __init__(self, owner: PartitionOwner, name: str, transactions: bool, sharing: Sharing | None = None) -> None:
        self.owner, self.name, self.transactions, self.sharing = owner, name, transactions, sharing
        self.ready = threading.Event()  # the terms of all customers are known
        self.alarms: dict[int, tuple[str, int]] = {}  # by partition, and the generation in which it was ours
        # What somebody asks for, by partition and generation; None until the database has said it.
        self._known: dict[tuple[int, int], Recalled | None] = {}
        self.group, self.topic = topic_name(GROUP), topic_name(INPUT)
        self._ends: dict[TopicPartition, LogEndSeen] = {}
        self._since: datetime | None = None
        self._named = False
        self._refused: set[int] = set()  # partitions whose last snapshot was refused
        self._next_terms = self._next_clock = self._next_share = 0.0
        self._away = False
        self._ending, self._wanted = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="throttler-database-sync", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def reached(self, ends: Mapping[TopicPartition, LogEndSeen]) -> None:
        """How far the log reaches; the next snapshot says so."""
        self._ends = {**self._ends, **ends}

    def known(self, number: int, epoch: int) -> Recalled | None:
        """What the read model knows of a partition in this generation; None: it is being asked for."""
        if recalled := self._known.get((number, epoch)):
            del self._known[number, epoch]
            return recalled
        self._known[number, epoch] = None
        self._wanted.set()
        return None

    def share_soon(self) -> None:
        """Partitions have come: ask for a part of the output rate at once."""
        self._next_share = 0.0
        self._wanted.set()

    def close(self, patience: float = 2.0) -> None:
        """Report once more, and leave the others our part of the output rate; given up after `patience` seconds."""
        self._ending.set()
        self._wanted.set()
        self._thread.join(patience)

    def _work(self) -> None:
        while not self._ending.is_set():
            self._try(self._round)
            self._wanted.wait(1.0)
            self._wanted.clear()
        if not self._away:
            self._try(self._retire)
        connection.close()

    def _try(self, act: Callable[[], None]) -> None:
        try:
            close_old_connections()
            act()
            self._away = False
        except Exception as error:  # noqa: BLE001 (whatever it is: the next round tries again)
            if not self._away:
                log.warning("upkeep_failed", worker=GROUP, error=str(error).strip()[:300])
            self._away = True
            connection.close()

    def _round(self) -> None:
        self._share()
        now = time.monotonic()
        if not self._named:
            take_name(self.name, self.transactions, database_now(), self.owner.snapshot.process)
            self._named = True
        if now >= self._next_terms:
            polled, self._since = changed_terms(self._since)
            self.owner.post(self.owner.learn, polled)
            self._next_terms = now + TERMS_EACH
            self.ready.set()
        if now >= self._next_clock:
            self._measure_clock()
            self._next_clock = now + CLOCK_EACH
        self._sound()
        for asked in [asked for asked, known in list(self._known.items()) if known is None]:
            self._known[asked] = known_of(asked[0])
        self._report()

    def _share(self) -> None:
        """Each second, however long the report takes: what was granted holds for three."""
        if self.sharing and time.monotonic() >= self._next_share:
            self._next_share = time.monotonic() + SHARE_EACH
            self.sharing.round()

    def _measure_clock(self) -> None:
        clock = self.owner.clock
        asked = clock.ticks()
        moment = database_now()
        self.owner.post(clock.measured, moment, asked, clock.ticks())

    def _sound(self) -> None:
        """The alarms of partitions that were stopped; not of those that another owner has now."""
        for number, raised in sorted(self.alarms.items()):
            if self._stop(AlarmedWatermarks(SOURCE), number, *raised) and self.alarms.get(number) == raised:
                self.alarms.pop(number, None)

    def _stop(self, marks: AlarmedWatermarks, number: int, alarm: str, epoch: int) -> bool:
        """A partition may stop before it was ever reported: then it has no row to say so."""
        now, alarms = database_now(), {(self.topic, number): alarm}
        with transaction.atomic():
            if is_superseded(number, epoch, self.owner.snapshot.process, now):
                return False
            marks.know(self.group, alarms, now)
            marks.stop(self.group, alarms, now)
        return True

    def _report(self) -> None:
        self.owner.post(self.owner.want_snapshot)
        snapshots = self._snapshots()
        if snapshots is None or self.owner.failure or self.owner.doubted:
            return  # somebody else has its name, and what it owned
        left = snapshots[::-1]
        try:
            now = database_now()
            while left:
                self._write(left[-1], now)
                left.pop()
                self._share()
            report_owner(self.name, list(self.owner.parts), self.transactions, now, self.owner.snapshot.process)
        except Exception:
            self.owner.post(self.owner.not_written, left)
            raise

    def _snapshots(self) -> list[PartitionSnapshot] | None:
        """The one that was asked for, and others that came too late for an earlier round, oldest first; None: none."""
        try:
            snapshots = self.owner.snapshots.get(timeout=SNAPSHOT)
        except queue.Empty:
            return None
        while not self.owner.snapshots.empty():
            snapshots = [*snapshots, *self.owner.snapshots.get()]
        return snapshots

    def _write(self, partition: PartitionSnapshot, now: datetime) -> None:
        end = self._ends.pop((self.topic, partition.number), None)
        reach = LogEnd(end.end_offset, now if end.caught_up else None) if end else None
        if write_read_model(replace(partition, reach=reach), self.group, self.topic, now):
            self._refused.discard(partition.number)
            return
        # Told again with the next one: the other owner may be one that a group knew which was forgotten since.
        self.owner.post(self.owner.not_written, [partition])
        if partition.number not in self._refused:
            log.warning("mirror_of_a_newer_owner", partition=partition.number)
        self._refused.add(partition.number)

    def _retire(self) -> None:
        self._sound()  # who has nothing but stopped partitions ends at once
        self._report()
        if self.sharing:
            self.sharing.leave()
