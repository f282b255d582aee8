"""The workers of the outbox, as the commands start them; and the recovery of lost leases."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import get_args

from django.apps import apps
from django.conf import settings
from django.db import connection

from config.database.clock import database_now
from config.environment.env import BadSetting
from config.kafka.consumer import consumer_of
from config.kafka.consumer.writer import parallel_writers
from config.processes import worker as loop
from config.telemetry import metrics
from config.telemetry.activity import activity
from outbox.bookkeeping.leases import Claimable, recover
from outbox.channels import permits
from outbox.channels.handlers import Kind, MessageHandler, handlers, misfit
from outbox.delivery.overdue import rescue
from outbox.intake.handler import Intake
from outbox.letters.burial import AlarmedWatermarks
from outbox.messages.models import OutboxMessage
from outbox.workers.listen import Listen
from outbox.workers.relay import Relay


# -- Recovery: ends the leases of workers that are gone ------------------------------------------------------
def recover_claims() -> dict[str, int]:
    """End every expired lease; `{table: rows}`. Runs on the database's clock."""
    now = database_now()
    claimable = [model for model in apps.get_models() if issubclass(model, Claimable)]
    recovered = {model._meta.db_table: recover(model, now) for model in claimable if model.releasable}
    return {**recovered, OutboxMessage._meta.db_table: rescue(now)}


# -- The workers of the outbox, as the commands start them ---------------------------------------------------
def relay(
    names: Sequence[str] | None, stop: threading.Event, *, once: bool = False, until_idle: float | None = None
) -> None:
    """Relay the named channels (default all) until `stop`, in a thread each: a slow one does not delay the others."""
    chosen = _chosen(names)
    permits.ensure([handler.name for handler in chosen])
    _begin_counting(chosen, "poll")
    activity.hold("relay", [handler.name for handler in chosen], "messages")

    def run(handler: MessageHandler) -> None:
        worker = Relay(handler, stop, longest_sleep=until_idle / 4 if until_idle else None)
        try:
            loop.run(worker.tick, stop, pause=worker.pause, once=once, until_idle=until_idle)
        finally:
            worker.close()

    jobs = [partial(run, handler) for handler in chosen for _ in range(threads_of(handler))]
    loop.together(jobs, stop)


def threads_of(handler: MessageHandler) -> int:
    """One where the database has one writer."""
    return 1 if connection.vendor == "sqlite" else handler.relays


def relay_round(seconds: float) -> int:
    """What is due in every channel, for at most so many seconds; returns how many messages moved."""
    stop = threading.Event()
    moved = 0
    chosen = _chosen(None)
    _begin_counting(chosen, "poll")
    for handler in chosen:
        worker = Relay(handler, stop)
        deadline = time.monotonic() + seconds / len(handlers())
        while (done := worker.tick()) and time.monotonic() < deadline:
            moved += done
        worker.close()
    return moved


def _chosen(names: Sequence[str] | None) -> list[MessageHandler]:
    known = handlers()
    unknown = sorted(set(names or ()) - set(known))
    if unknown:
        raise BadSetting(f"HANDLERS has no channel {unknown[0]!r}; it has {', '.join(known) or 'none'}")
    if not known:
        raise BadSetting("HANDLERS names no channel: there is nothing to relay")
    chosen = [known[name] for name in names or known]
    for line in filter(None, map(misfit, chosen)):
        raise BadSetting(line)
    return chosen


def _begin_counting(chosen: Sequence[MessageHandler], path: str) -> None:
    """Whoever delivers exports all that it may count."""
    metrics.from_zero(metrics.OUTBOX_CLAIMS, [path])
    types = [*sorted(metrics.EVENT_TYPES), metrics.OTHER_TYPE]
    metrics.from_zero(metrics.DELIVERIES, [handler.name for handler in chosen], types, get_args(Kind))


def listen(
    stop: threading.Event, *, accept_reset: bool = False, once: bool = False, until_idle: float | None = None
) -> None:
    """Read the CDC topic until `stop`; claimed messages are then delivered or released."""
    chosen = _chosen(None)
    permits.ensure([handler.name for handler in chosen])
    _begin_counting(chosen, "cdc")
    handler = Listen(stop)
    try:
        positions = AlarmedWatermarks(handler.source)
        consumer_of(handler, positions, stop, accept_reset=accept_reset).run(once=once, until_idle=until_idle)
    finally:
        handler.close()


def take_in(
    stop: threading.Event, *, accept_reset: bool = False, once: bool = False, until_idle: float | None = None
) -> None:
    """Store what other services promise in the topics of MESSAGES_IN, until `stop`; the relays send it."""
    if not settings.MESSAGES_IN:
        raise BadSetting("MESSAGES_IN is off: there is no topic in which a service may promise a message")
    permits.ensure([handler.name for handler in _chosen(None)])
    handler = Intake()
    positions = AlarmedWatermarks(handler.source)
    consumer = consumer_of(handler, positions, stop, accept_reset=accept_reset, writers=parallel_writers())
    consumer.run(once=once, until_idle=until_idle)
