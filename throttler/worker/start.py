"""Puts a throttler together and runs it, as its command starts it."""

from __future__ import annotations

import threading
from functools import partial
from uuid import uuid4

from django.conf import settings

from config.database.clock import database_now
from config.kafka import client, internals, topic_name
from config.kafka.client import NO_TRANSACTIONS, transactions_supported
from config.kafka.consumer import Consumer
from config.kafka.consumer.ports import ConsumerStopped, Parts
from config.kafka.transactional_producer import TransactionalProducer
from config.processes.worker import Patience
from config.telemetry import metrics
from config.telemetry.logs import log
from throttler.customers.policy_cache import PolicyCache
from throttler.engine.drain import PageReader
from throttler.engine.output_transaction import EXPIRED, INPUT, OUTPUT
from throttler.engine.repair import Repairs, Rereader
from throttler.engine.row_writer import GROUP, RowHandler, WriteBehind, writers_of
from throttler.lanes.restore_thread import RestoreThread
from throttler.lanes.state import CHANGELOG
from throttler.limits.output_rate import OutputLimiter
from throttler.limits.rate import default_rates, output_rate
from throttler.limits.shares import OutputShare
from throttler.overflow import store_of_settings
from throttler.worker.consumer_backend import (
    Notifications,
    OwnerBackend,
    OwnerFollower,
    PlainCommitter,
    PlainSender,
    RestoredPlacing,
    TransactionCommitter,
)
from throttler.worker.database_sync import DatabaseSync, Sharing
from throttler.worker.owner import PartitionOwner, SteadyClock
from throttler.worker.round import RoundContext
from throttler.worker.snapshot import Snapshot

# The group must have answered one of the last heartbeats, so many seconds later at most: we know then what is ours.
HEARTBEATS, LATE = 2, 1.5


def throttle(
    stop: threading.Event, instance: str = "", *, accept_reset: bool = False, once: bool = False,
    until_idle: float | None = None,
) -> None:  # fmt: skip
    """Own partitions of notifications-in until `stop`; raises ConsumerStopped when an operator has to look."""
    name = instance or uuid4().hex[:12]
    if (clock := clock_of_database(stop)) is None:
        return
    refuse_unfit_broker()
    counts = same_counts()
    throttler = ThrottlerParts(name, counts[topic_name(INPUT)], clock, accept_reset)
    follower = OwnerFollower(throttler.owner, throttler.placing, topic_name(GROUP), instance, throttler.assigned)
    options: dict[str, object] = {"follower": follower, "counts": counts}
    if instance:
        options |= {"instance": instance, "is_fenced": internals.is_fenced}
    consumer = Consumer(Notifications(), throttler.parts, stop, **options)
    delivery = "exactly once" if settings.KAFKA_TRANSACTIONS else "at least once: run one process"
    log.info("throttler_starts", instance=name, transactions=settings.KAFKA_TRANSACTIONS, delivery=delivery)
    throttler.start()
    consumer.run(once=once, until_idle=until_idle)


def clock_of_database(stop: threading.Event) -> SteadyClock | None:
    """A clock that begins with the database's time; waits for a database that is away. None: told to stop.

    Lanes go from host to host, and clocks of hosts differ: a fresh burst for whoever comes to one that is ahead. And who
    does not know the rates joins nothing yet: the others go on with those that they know.
    """
    patience = Patience(stop, tries=None)
    while not stop.is_set():
        if now := patience.attempt(database_now):
            return SteadyClock(start=now)
    return None


def refuse_unfit_broker() -> None:
    """A broker that does not check a transaction's offsets against the group would let a zombie commit."""
    if not settings.KAFKA_TRANSACTIONS:
        return
    admin = client.new_admin()
    try:
        if not transactions_supported(admin):
            raise ConsumerStopped(NO_TRANSACTIONS)
    finally:
        admin.close()


def same_counts() -> dict[str, int]:
    """How many partitions input, outputs and changelog have, all alike; raises ConsumerStopped when they differ."""
    consumer = client.new_consumer(None)
    try:
        names = [topic_name(name) for name in (INPUT, OUTPUT, EXPIRED, CHANGELOG)]
        counts = {name: client.count_partitions(consumer, name) for name in names}
    finally:
        consumer.close(autocommit=False)
    if missing := [name for name, count in counts.items() if not count]:
        raise ConsumerStopped(f"topic {missing[0]} does not exist: create_topics makes it")
    if len(set(counts.values())) > 1:
        numbers = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise ConsumerStopped(f"the throttler's topics must have equally many partitions: {numbers}")
    return counts


class ThrottlerParts:
    """The parts of one process."""

    def __init__(self, name: str, partitions: int, clock: SteadyClock, accept_reset: bool) -> None:
        transactions = settings.KAFKA_TRANSACTIONS
        self.producer: TransactionalProducer | PlainSender = (
            TransactionalProducer(f"{topic_name(GROUP)}-{name}") if transactions else PlainSender()
        )
        policies = PolicyCache(default_rates())
        output = output_limiter(partitions, clock)
        context = RoundContext(policies, settings.THROTTLER_TTL_SECONDS * 1_000_000, partitions, output)
        self.sharing = Sharing(name, output, clock) if output else None
        store = store_of_settings()
        handler = RowHandler(store)
        rows, letters = writers_of(handler)
        process = uuid4().hex
        self.owner = PartitionOwner(
            self.producer, context, WriteBehind(rows, letters), handler, PageReader(store),
            Repairs(context.drain, Rereader(store, process)), Snapshot(context.drain, process), clock,
        )  # fmt: skip
        self.database_sync = DatabaseSync(self.owner, name, transactions, self.sharing)
        self.backend = OwnerBackend(self.owner, self.database_sync, topic_name(INPUT))
        self.restoring = RestoreThread(
            topic_name(INPUT),
            topic_name(CHANGELOG),
            topic_name(GROUP),
            accept_reset=accept_reset,
            observe=metrics.THROTTLER_RESTORE_SECONDS.observe,
        )
        self.placing = RestoredPlacing(
            self.restoring, topic_name(INPUT), self.backend.adopt,
            lambda *gone: self.owner.post(self.owner.give_up, *gone), self.ready, self.database_sync.known,
            self.database_sync.alarms,
        )  # fmt: skip

    def assigned(self, numbers: set[int] | None, generation: int) -> None:
        """What the group has given us, or None when it takes everything away."""
        if not self.sharing:
            return
        if numbers is None:
            self.sharing.group.released()
        else:
            self.sharing.group.assigned(numbers, generation)
            self.database_sync.share_soon()

    def start(self) -> None:
        self.owner.start()
        self.database_sync.start()

    def ready(self) -> bool:
        """Whether lanes may be restored: the customers' rates are known, and that it is we who own them."""
        return self.database_sync.ready.is_set() and not self.owner.outdated

    def parts(self, consumer: client.Client) -> Parts:
        self.owner.repairs.heard = partial(internals.confirmed_at, consumer)
        if self.sharing:
            self.sharing.group.heard = self.owner.repairs.heard
        sender = self.producer
        committer = (
            PlainCommitter(consumer, self.owner, sender)
            if isinstance(sender, PlainSender)
            else TransactionCommitter(consumer, self.owner)
        )
        return Parts(self.backend, committer, self.placing, accept_damage=self.restoring.accept_reset)


def output_limiter(partitions: int, clock: SteadyClock) -> OutputLimiter | None:
    """This process's part of the rate of all; None when THROTTLER_OUTPUT_RATE is empty."""
    rate = output_rate()
    sure = HEARTBEATS * client.heartbeat_ms() / 1000 + LATE
    return OutputLimiter(rate, OutputShare(partitions, int(sure * 1_000_000)), clock.now()) if rate else None
