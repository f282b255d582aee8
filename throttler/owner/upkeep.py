"""Once a second beside the owner, on a thread of its own: customers' terms, the database's time, mirror and alarms."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db import close_old_connections, connection, transaction

from config.database.clock import database_now
from config.kafka import topic_name
from config.kafka.positions import Reach, TopicPartition
from config.kafka.runtime.writer import LogEnd
from config.telemetry.logs import log
from outbox.letters.handler import AlarmedWatermarks
from throttler.customers.rates_poll import changed_terms
from throttler.lanes.mirror import (
    MirrorPartition,
    Recalled,
    is_superseded,
    known_of,
    mirror,
    report_owner,
    retire_owner,
    take_name,
)
from throttler.live.decode import SOURCE
from throttler.live.sending import INPUT
from throttler.live.storing import GROUP
from throttler.owner.owner import PartitionOwner
from throttler.owner.sharing import Sharing

TERMS_EACH, CLOCK_EACH, SHARE_EACH = 2.0, 30.0, 1.0  # seconds
SNAPSHOT = 2.0  # seconds to wait for one: a transaction may take longer, and then it comes with the next round


class Upkeep:
    """The database's part of an owner that is not on any message's way: with the database away, all of it waits."""

    def __init__(self, owner: PartitionOwner, name: str, transactions: bool, sharing: Sharing | None = None) -> None:
        self.owner, self.name, self.transactions, self.sharing = owner, name, transactions, sharing
        self.ready = threading.Event()  # the terms of all customers are known
        self.alarms: dict[int, tuple[str, int]] = {}  # by partition, and the generation in which it was ours
        self._known: dict[tuple[int, int], Recalled | None] = {}  # what somebody asks for, once the database has told
        self.group, self.topic = topic_name(GROUP), topic_name(INPUT)
        self._ends: dict[TopicPartition, LogEnd] = {}
        self._since: datetime | None = None
        self._named = False
        self._refused: set[int] = set()  # partitions whose last mirror was refused
        self._next_terms = self._next_clock = self._next_share = 0.0
        self._away = False
        self._ending, self._wanted = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="throttler-upkeep", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def reached(self, ends: Mapping[TopicPartition, LogEnd]) -> None:
        """How far the log reaches; told with the next mirror."""
        self._ends = {**self._ends, **ends}

    def known(self, number: int, epoch: int) -> Recalled | None:
        """What the mirror knows of a partition in this generation; None: it is being asked for."""
        if found := self._known.get((number, epoch)):
            del self._known[number, epoch]
            return found
        self._known[number, epoch] = None
        self._wanted.set()
        return None

    def share_soon(self) -> None:
        """Partitions have come: ask for a part of the output rate at once."""
        self._next_share = 0.0
        self._wanted.set()

    def close(self, patience: float = 2.0) -> None:
        """Mirror once more and retire; given up after `patience` seconds."""
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

    def _try(self, act: Any) -> None:
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
            take_name(self.name, self.transactions, database_now(), self.owner.reflection.process)
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
        self._mirror()

    def _share(self) -> None:
        """Each second, however long the mirror takes: what was granted holds for three."""
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
        """A partition may stop before it was ever mirrored: then it has no row to say so."""
        now, alarms = database_now(), {(self.topic, number): alarm}
        with transaction.atomic():
            if is_superseded(number, epoch, self.owner.reflection.process, now):
                return False
            marks.know(self.group, alarms, now)
            marks.stop(self.group, alarms, now)
        return True

    def _mirror(self) -> None:
        self.owner.post(self.owner.want_snapshot)
        found = self._snapshots()
        if found is None or self.owner.failure or self.owner.doubted:
            return  # somebody else has its name, and what it owned
        left = found[::-1]
        try:
            now = database_now()
            while left:
                self._write(left[-1], now)
                left.pop()
                self._share()
            weight = float(self.owner.rules.drain.schedule.due_weight)
            report_owner(
                self.name, list(self.owner.parts), weight, self.transactions, now, self.owner.reflection.process
            )
        except Exception:
            self.owner.post(self.owner.not_mirrored, left)
            raise

    def _snapshots(self) -> list[MirrorPartition] | None:
        """The one that was asked for, and others that came too late for an earlier round, oldest first; None: none."""
        try:
            found = self.owner.snapshots.get(timeout=SNAPSHOT)
        except queue.Empty:
            return None
        while not self.owner.snapshots.empty():
            found = [*found, *self.owner.snapshots.get()]
        return found

    def _write(self, partition: MirrorPartition, now: datetime) -> None:
        end = self._ends.pop((self.topic, partition.number), None)
        reach = Reach(end.end_offset, now if end.caught_up else None) if end else None
        if mirror(replace(partition, reach=reach), self.group, self.topic, now):
            self._refused.discard(partition.number)
            return
        # Told again with the next one: the other owner may be one that a group knew which was forgotten since.
        self.owner.post(self.owner.not_mirrored, [partition])
        if partition.number not in self._refused:
            log.warning("mirror_of_a_newer_owner", partition=partition.number)
        self._refused.add(partition.number)

    def _retire(self) -> None:
        self._sound()  # who has nothing but stopped partitions ends at once
        self._mirror()
        if self.sharing:
            self.sharing.leave()
        retire_owner(self.name, self.owner.reflection.process)
