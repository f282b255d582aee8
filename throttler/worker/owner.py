"""The owner's time, and its thread: takes batches up, drains what is due, and runs one Kafka transaction after the other."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from django.conf import settings

from config.kafka import client
from config.kafka.client import GroupMetadata
from config.kafka.positions import Mark
from config.kafka.transactional_producer import Committed, FencedInstance, NotCommitted, RefusedByGroup, RefusedRecord
from config.telemetry import metrics
from config.telemetry.logs import log
from throttler.customers.policy_cache import CustomerTerms
from throttler.engine.decisions import Decoded
from throttler.engine.drain import PageReader
from throttler.engine.output_transaction import OutputTransaction, Sender
from throttler.engine.partition import OwnedPartition
from throttler.engine.repair import Repairs
from throttler.engine.row_writer import Refusals, RowHandler, WriteBehind
from throttler.lanes.read_model import PartitionSnapshot
from throttler.limits.limiter import adopt
from throttler.messages import microseconds
from throttler.worker.round import LOGGED_US, OwnerRound, RoundContext
from throttler.worker.snapshot import Snapshot

# -- The owner's time ----------------------------------------------------------------------------------------
# The monotonic clock plus an offset measured against the database; it never goes back.
LARGEST_STEP = 50_000  # of one correction: a clock that is an hour off is neither believed at once nor a fresh burst


class SteadyClock:
    """Microseconds since 1970. A step of the host's clock changes nothing; one of the database's grants no burst.

    Corrections are small: backwards the time stands still for a moment, forwards it gains that little.
    """

    def __init__(self, monotonic: Callable[[], int] = time.monotonic_ns, start: datetime | None = None) -> None:
        self._monotonic = monotonic
        self._offset = (microseconds(start) if start else time.time_ns() // 1000) - monotonic() // 1000
        self._last = 0

    def now(self) -> int:
        self._last = max(self._last, self._monotonic() // 1000 + self._offset)
        return self._last

    def of(self, monotonic: float) -> int:
        """When that was, in the seconds of `time.monotonic()`; any thread may ask."""
        return int(monotonic * 1e6) + self._offset

    def reading(self) -> int:
        """The time for other threads than the owner's: it may go back by one correction."""
        return self._monotonic() // 1000 + self._offset

    def ticks(self) -> int:
        """The monotonic clock, in nanoseconds."""
        return self._monotonic()

    def measured(self, database: datetime, asked: int, answered: int) -> int:
        """Take up the database's time, read between two ticks; returns the microseconds it was off.

        Only small corrections count, and none that the time it took to ask explains: under load that is a second.
        """
        off = microseconds(database) - ((asked + answered) // 2000 + self._offset)
        doubt = (answered - asked) // 2000
        sure = max(0, off - doubt) + min(0, off + doubt)
        self._offset += max(-LARGEST_STEP, min(LARGEST_STEP, sure))
        return off


# -- The owner's thread --------------------------------------------------------------------------------------
RECORDS, SECONDS = 2000, 0.05  # after either, what came in goes into a transaction
SHORTEST, LONGEST = 0.002, 0.2  # seconds to wait for news


class PartitionOwner:
    """State of the partitions this process owns; everything but `post` and the plain attributes is for its thread.

    The outcome of a transaction decides what becomes of the state: committed, it is final; refused, it is dropped and
    read again from Kafka; unknown, the producer is made anew first, which settles the transaction one way or the other.
    """

    metadata: GroupMetadata  # which transactions name: of the generation in which the partitions were adopted

    def __init__(
        self, producer: Sender, context: RoundContext, write_behind: WriteBehind, handler: RowHandler, pages: PageReader,
        repairs: Repairs, snapshot: Snapshot, clock: SteadyClock,
    ) -> None:  # fmt: skip
        self.producer, self.context, self.write_behind = producer, context, write_behind
        self.handler, self.pages = handler, pages
        self.repairs, self.snapshot, self.clock = repairs, snapshot, clock
        self.transaction = OutputTransaction(producer)
        self.parts = context.parts
        # Our newest membership: the polling thread sets it, also during a transaction.
        self.member: GroupMetadata | None = None
        self._refusal: tuple[GroupMetadata, RefusedByGroup] | None = None  # the last one, and the membership refused
        self.dropped: queue.SimpleQueue[set[int]] = queue.SimpleQueue()  # partitions that have to be placed anew
        self.snapshots: queue.SimpleQueue[list[PartitionSnapshot]] = queue.SimpleQueue()
        self.failure: BaseException | None = None
        self.worked_at = time.monotonic()
        self.stalled: set[int] = set()  # partitions of which too much waits for the store
        self._late_us: dict[int, int] = {}  # of partitions whose last transaction may have left without our knowing
        self._refusals = Refusals(handler.refused)
        self._snapshot_wanted = False
        self._news: queue.SimpleQueue[tuple[Callable[..., object], tuple[object, ...]]] = queue.SimpleQueue()
        self._round = OwnerRound(context)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="throttler-owner", daemon=True)
        metrics.from_zero(metrics.THROTTLER_TRANSACTIONS, ["committed", "refused", "unknown"])

    def start(self) -> None:
        self._thread.start()

    @property
    def outdated(self) -> bool:
        """Whether the group has gone on without us: what is ours is known when it has taken us in again."""
        return self._refusal is not None and self._refusal[0] == self.member

    @property
    def doubted(self) -> bool:
        """Whether another member has our name: another process, or we under an id that we have not heard yet."""
        return self.outdated and isinstance(self._refusal and self._refusal[1], FencedInstance)

    @property
    def alive(self) -> bool:
        """Whether what is posted will still be done: not once it ends, even if a call of its closed client still waits."""
        return self._thread.is_alive() and not self._ending.is_set()

    def post(self, act: Callable[..., object], *arguments: object) -> None:
        """Let the owner's thread do it, after everything that was posted before."""
        self._news.put((act, arguments))

    def close(self, patience: float) -> None:
        """End behind the transaction in hand; after `patience` seconds without it."""
        self._ending.set()
        self.post(lambda: None)
        self._thread.join(patience)
        self.producer.close()
        self._thread.join(0.5)

    # -- What others post -----------------------------------------------------------------------

    def assigned(self, metadata: GroupMetadata) -> None:
        """Every transaction from now on names this generation and member id, and not yet those of a later join."""
        self.metadata = metadata

    def adopt(
        self, part: OwnedPartition, forgotten: Iterable[bytes] = (), done: Callable[[], None] = lambda: None
    ) -> None:
        """A partition was restored: from now on its records are taken up. `forgotten` keys go from the changelog.

        `done` is called behind the transaction that says so, or when nothing has to be said.
        """
        self._round.settled.append(done)
        now = self.clock.now()
        self.parts[part.number] = part
        self.context.topic_id = part.topic_id
        self.snapshot.adopted(part, now)
        self.context.eviction.forget(part, forgotten)
        # The changelog says when the last transaction's messages were decided, not how late they left.
        late_us = max(LOGGED_US, part.late_us, self._late_us.pop(part.number, 0))
        self.context.adopt(part, late_us, now)

    def give_up(self, numbers: Iterable[int], then: Callable[[set[int]], None] = lambda _gone: None) -> None:
        """Partitions are somebody else's, or are read again; `then` is called when nothing of them is left here."""
        gone = set(numbers)
        for number in gone & self.parts.keys():
            del self.parts[number]
        for number in gone:
            self.context.drain.forget(number)
            metrics.THROTTLER_STALLED.remove(str(number))  # whoever has it now says it
        self.stalled -= gone
        self._round.drop(gone)
        self.write_behind.drop(gone)
        self.snapshot.forget(gone)
        self.repairs.forget(gone)
        then(gone)

    def give_up_all(self, done: threading.Event) -> None:
        """Before the group takes everything away: no transaction begins any more."""
        self.give_up(set(self.parts))
        done.set()

    def take(self, batch: Sequence[Decoded], done: Callable[[], None]) -> None:
        """Decide a batch; `done` is called when its transaction is settled. Of partitions that are not ours: nothing."""
        self.worked_at = time.monotonic()
        self._round.settled.append(done)
        self._round.decide(batch, self.write_behind, self.clock.now())

    def passed(self, positions: Mapping[int, Mark]) -> None:
        """The client is behind everything below these, and there was no record in it that has not been taken up."""
        for number, mark in positions.items():
            if (part := self.parts.get(number)) and part.topic_id == mark.topic_id:
                part.pass_to(mark.next_offset)

    def learn(self, polled: Mapping[str, CustomerTerms]) -> None:
        """Rates, holds, purges and lifetimes as the database has them now."""
        changed = self.context.policies.learn(polled)
        now = self.clock.now()
        for part in self.parts.values() if changed else ():
            for lane in [part.lanes[customer] for customer in changed & part.lanes.keys()]:
                adopt(self.context.policies.of(lane.customer).rates, lane.limiter, now)
                self.context.drain.look_again(part, lane, now)

    def want_snapshot(self) -> None:
        """Put what the read model does not know yet into `snapshots`, behind the transaction in hand."""
        self._snapshot_wanted = True

    def not_written(self, lost: Sequence[PartitionSnapshot]) -> None:
        """The database did not take these: they are part of the next snapshot."""
        for partition in lost:
            self.snapshot.failed(partition)

    # -- The thread -----------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._rebuild()
            while not self._ending.is_set():
                self._turn()
            self.want_snapshot()
            self._snap(self.clock.now())
        except BaseException as failure:  # noqa: BLE001 (raised again where the consumer runs)
            self.failure = failure
            if not isinstance(failure, client.FATAL):  # which the command says in one line
                log.exception("owner_failed")
        finally:
            self._round.settle()

    def _turn(self) -> None:
        self._hear()
        now = self.clock.now()
        self.write_behind.note_stored(self.parts.values())
        for part, lane in self._refusals.round(self.parts):
            self._round.out.touch(part, lane)
        while not self.pages.pages.empty():
            self.context.drain.take(self.pages.pages.get(), now)
        for part, lane in self.repairs.round(now):
            self._round.out.touch(part, lane)
        self._round.drain(now)
        current, self._round = self._round, OwnerRound(self.context)
        self.write_behind.push()
        if current.to_send(now):
            self._transact(current)
        self.context.settled(self.clock.now())
        current.settle()
        if wanted := self.context.drain.wanted():
            self.pages.ask(wanted)
        self._note_state()
        self._snap(self.clock.now())

    def _hear(self) -> None:
        """Wait for news until something is due; then take what there is, up to a transaction's worth."""
        until, patience = time.monotonic() + SECONDS, self._patience()
        while self._round.out.size < RECORDS and time.monotonic() <= until:
            try:
                act, arguments = self._news.get(timeout=patience) if patience else self._news.get_nowait()
            except queue.Empty:
                return
            act(*arguments)
            patience = 0.0

    def _patience(self) -> float:
        if self.write_behind.answers_soon or self.context.drain.asked:
            return SHORTEST
        if (due := self.context.drain.schedule.next_due()) is None:
            return LONGEST
        return min(LONGEST, max(SHORTEST, (due - self.clock.now()) / 1e6))

    # -- Transactions ---------------------------------------------------------------------------

    def _transact(self, current: OwnerRound) -> None:
        self.worked_at = math.inf  # until it has ended, however long a busy broker takes
        before = self.clock.now()
        verdict = current.send(self.transaction, self.metadata)
        self.worked_at, now = time.monotonic(), self.clock.now()
        metrics.THROTTLER_TRANSACTION_SECONDS.observe((now - before) / 1e6)
        if isinstance(verdict, Committed):
            metrics.THROTTLER_TRANSACTIONS.labels("committed").inc()
            for part, lane in current.committed(now):
                self._round.out.touch(part, lane)
            self.snapshot.committed(current.out, before)
        else:
            self._start_over(verdict, current)

    def _start_over(self, verdict: NotCommitted, current: OwnerRound) -> None:
        """Nothing of the transaction may count: forget all state, and let it be read from Kafka again."""
        refusal = isinstance(verdict, RefusedByGroup | RefusedRecord)
        metrics.THROTTLER_TRANSACTIONS.labels("refused" if refusal else "unknown").inc()
        log.warning("transaction_refused" if refusal else "transaction_unknown", reason=verdict.reason)
        if isinstance(verdict, RefusedRecord):
            self.context.refuse(self.transaction.sent_as(verdict.index, current.out), verdict)
        if isinstance(verdict, RefusedByGroup):
            self._refusal = self.metadata, verdict
        numbers = set(self.parts)
        self.give_up(numbers)
        self._late_us |= dict.fromkeys(numbers, self.clock.now() - current.began_us)
        # After a refused record the client counts its records wrongly: the next transaction would fail.
        if not isinstance(verdict, RefusedByGroup) or not self.producer.usable:
            self._rebuild()
        self.dropped.put(numbers)

    def _note_state(self) -> None:
        """For the polling thread: whether anything is due or on its way, and whether too much waits for the store."""
        drain = self.context.drain
        if self.write_behind.busy or drain.asked or drain.suspended or drain.refused or drain.schedule.due_weight:
            self.worked_at = time.monotonic()
        if self.write_behind.store_is_away:
            drain.doubt()
        # Beyond the limit nothing more of it is read, until half of that is stored: not for a moment each time.
        most = settings.THROTTLER_STALL_RECORDS
        stalled = {
            number for number, part in self.parts.items()
            if part.waiting > (most // 2 if number in self.stalled else most)
        }  # fmt: skip
        for number in stalled ^ self.stalled:
            metrics.THROTTLER_STALLED.labels(str(number)).set(number in stalled)
        self.stalled = stalled

    def _snap(self, now: int) -> None:
        if self._snapshot_wanted:
            self._snapshot_wanted = False
            self.snapshots.put(self.snapshot.take(self.parts.values(), now))

    def _rebuild(self) -> None:
        """A producer whose earlier transactions are settled, however long the broker is away; raises what is refused."""
        warned = False
        while not self._ending.is_set():
            try:
                self.producer.rebuild(self.member)
                break
            except client.FATAL:
                raise
            except client.KafkaError as error:
                if not warned:
                    log.warning("producer_unavailable", error=str(error))
                warned = True
                self._ending.wait(0.2)
