"""The CDC path: Kafka brings the ids of inserted messages (hints); these messages are claimed and delivered."""

from __future__ import annotations

import queue
import threading
import uuid
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections, connections, transaction

from config.database.clock import database_now
from config.fields import uuid7_milliseconds
from config.gate import InvalidRecord
from config.kafka import Record, RecordBatch, topic_name
from config.telemetry.logs import log
from outbox.bookkeeping import counters
from outbox.channels.handlers import MessageHandler, handlers
from outbox.delivery.claim import Claim, Unheard, claim
from outbox.delivery.deliver import deliver
from outbox.letters.burial import Letter, LetterHandler, bury
from outbox.messages.models import FLOW
from outbox.workers import change_capture

NAME = "outbox-listen"


class Verdicts(NamedTuple):
    """A decoded batch: ids to claim, in the order of the records, and when Kafka got these (Unix time); letters; and how
    many records were neither."""

    ids: dict[uuid.UUID, float]
    letters: list[Letter]
    skipped: int


class DeliveryThread:
    """Delivers one channel's claims in a thread of its own, so that reading Kafka does not wait."""

    def __init__(self, handler: MessageHandler, stop: threading.Event) -> None:
        self.handler = handler
        self.stop = stop
        self.in_hand = 0
        self._claims: queue.Queue[Claim | None] = queue.Queue()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name=f"{handler.name}-delivery", daemon=True)
        self._thread.start()

    @property
    def room(self) -> int:
        """How many more messages may be claimed; the poller claims the others."""
        return max(0, settings.OUTBOX_BATCH - self.in_hand)

    def submit(self, claimed: Claim) -> None:
        with self._lock:
            self.in_hand += len(claimed.messages)
        self._claims.put(claimed)

    def close(self) -> None:
        """Deliver the claimed messages, or release them if the process stops."""
        self._claims.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (claimed := self._claims.get()) is not None:
            try:
                close_old_connections()
                deliver(claimed, self.handler, self.stop)
            except Exception:  # noqa: BLE001 (the rows stay ours until the lease ends; recovery decides about them)
                log.exception("delivery_broken", channel=self.handler.name)
                connections.close_all()
            finally:
                with self._lock:
                    self.in_hand -= len(claimed.messages)
        connections.close_all()


class Listen(LetterHandler):
    """The consumer's handler. It sends the stored row, never the record: both paths make the same claim, so a repeated,
    stale or foreign hint changes nothing, and a failed delivery is tried again from its row."""

    name, source = NAME, FLOW
    group = change_capture.CDC_GROUP
    gathers = True

    def __init__(self, stop: threading.Event) -> None:
        self.topics = [settings.OUTBOX_CDC_TOPIC]
        self.newest = 0  # milliseconds in the newest id that was hinted at
        self.unheard = Unheard()  # the batch's transaction commits them
        self.threads = [DeliveryThread(handler, stop) for handler in handlers().values()]

    def key_in(self, record: Record) -> str:
        return change_capture.message_in(record)

    def prepare(self, batch: RecordBatch) -> Verdicts:
        ids: dict[uuid.UUID, float] = {}
        letters: list[Letter] = []
        skipped = 0
        for record in batch.records:
            try:
                change = change_capture.read_change(record.value)
            except InvalidRecord as refusal:
                letters.append(self.letter(batch, record, change_capture.DECODE, refusal.reason, str(refusal)))
                continue
            if isinstance(change, change_capture.Hint):
                ids.setdefault(change.id, record.timestamp / 1000)
            else:
                skipped += 1
        return Verdicts(ids, letters, skipped)

    def write(self, batch: RecordBatch, now: datetime) -> None:
        """Claim the hinted messages in the transaction that moves the watermark; deliver them after its commit."""
        verdicts: Verdicts = batch.prepared
        self.unheard.give_back()
        if verdicts.ids:
            self.newest = max(self.newest, uuid7_milliseconds(max(verdicts.ids)))
            for thread in self.threads:
                self._claim(thread, verdicts.ids)
        buried = bury(verdicts.letters, topic_name(self.group), now)
        counts = Counter(
            {
                (FLOW, "cdc", "hinted"): len(verdicts.ids),
                (FLOW, "cdc", "skipped"): verdicts.skipped,
                (FLOW, "cdc", "parked"): len(buried),
            }
        )
        counters.add(counts, now)

    def _claim(self, thread: DeliveryThread, ids: Mapping[uuid.UUID, float]) -> None:
        if not thread.room:
            return
        claimed = claim(thread.handler, "cdc", thread.room, ids=list(ids))
        claimed.recorded = ids
        if claimed.messages:
            self.unheard.claims.append(claimed)
            transaction.on_commit(lambda: self._hear(thread, claimed))

    def _hear(self, thread: DeliveryThread, claimed: Claim) -> None:
        self.unheard.claims.remove(claimed)
        thread.submit(claimed)

    def each_second(self, now: datetime) -> None:
        """Not with each batch: all listeners and relays share the channels' rows, and would wait for each other."""
        if self.newest:
            change_capture.note_seen(self.newest, now)

    def pressure(self) -> bool:
        """While a channel's thread is full, hints wait in Kafka; the poller takes messages that wait too long."""
        return any(not thread.room for thread in self.threads)

    def close(self) -> None:
        for thread in self.threads:
            thread.close()
        with suppress(DatabaseError, InterfaceError):  # it may be why we end
            self.each_second(database_now())
