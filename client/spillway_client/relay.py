"""The relay: claims promises with a lease, sends them in order, and notes what was confirmed.

One relay sends at a time, the others stand by: whoever finds the oldest promises leased leaves them alone. A claim that
was frozen for longer than its lease has lost it: what it still sends is a repeat under the same idempotency key, which
Spillway knows, and what it notes names its own lease, so that nothing is noted over a later claim.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, InterfaceError, OperationalError, connections, router, transaction
from django.db.models import F
from django.utils import timezone

from spillway_client.models import Promise, PromiseQuerySet
from spillway_client.options import Options, read_options
from spillway_client.producer import FAILED, REFUSED, SENT, Outcome, Producer

log = logging.getLogger("spillway_client")
# Unix time, whatever zone a session has. MySQL's counts whole seconds.
CLOCKS = {
    "postgresql": "SELECT extract(epoch FROM clock_timestamp())",
    "mysql": "SELECT unix_timestamp()",
    "sqlite": "SELECT (julianday('now') - 2440587.5) * 86400",
}
LONGEST_WAIT = 30.0  # seconds between two tries, while the broker or the database is away
TRIES = 5  # of a relay that ends by itself
SWEEP_SECONDS, SWEPT = 60.0, 1000


# -- A claim: lease, send, note ---------------------------------------------------------------------------------
@dataclass
class Claim:
    """The oldest promises, leased until `until` (monotonic): counted from before the lease, so never for longer."""

    until: float
    promises: list[Promise] = field(default_factory=list)
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def note(self, promises: Sequence[Promise] | None = None, **outcome: Any) -> int:
        """Write it down of those, or of all, that this claim still holds, and give them back; returns how many.

        A deadlock with whoever claims is lost at most twice: what has left is noted, or it leaves again.
        """
        held = all_promises().held_by(self.token)
        if promises is not None:
            held = held.filter(pk__in=[promise.pk for promise in promises])
        for tries_left in (2, 1, 0):
            try:
                return held.update(lease_until=0, **outcome)
            except OperationalError:
                if not tries_left:
                    raise
        return 0


def all_promises() -> PromiseQuerySet:
    """Where publish() writes them."""
    return Promise.objects.using(router.db_for_write(Promise))


def claim(options: Options) -> Claim:
    """Lease the oldest pending promises, or none if another relay has some; one that asks at the same time waits."""
    claimed, pending = Claim(time.monotonic() + options.LEASE_SECONDS), all_promises().pending()
    first = pending.only("lease_until").first()  # who stands by does not even wait for a lock
    if first is None or first.lease_until > _now(pending.db):
        return claimed
    with transaction.atomic(using=pending.db):
        oldest = list(pending.select_for_update()[: options.BATCH])
        now = _now(pending.db)
        if oldest and not any(promise.lease_until > now for promise in oldest):
            lease = {"lease_token": claimed.token, "lease_until": now + options.LEASE_SECONDS + 1}
            pending.filter(pk__in=[promise.pk for promise in oldest]).update(attempts=F("attempts") + 1, **lease)
            claimed.promises = oldest
    return claimed


def _now(database: str) -> float:
    """The database's time."""
    with connections[database].cursor() as cursor:
        cursor.execute(CLOCKS[connections[database].vendor])
        return float(cursor.fetchone()[0])


def deliver(claimed: Claim, producer: Producer, patience: float, stop: threading.Event) -> tuple[Counter[str], str]:
    """Send what is claimed, of each aggregate one after the other, and give back what did not leave.

    Returns how many became what, and why some failed.
    """
    tally, why, waiting = Counter[str](), "", claimed.promises
    try:
        while waiting and not stop.is_set() and (until := claimed.until - patience) > time.monotonic():
            firsts: dict[str, Promise] = {}
            for promise in waiting:
                firsts.setdefault(promise.aggregate, promise)
            heads = list(firsts.values())
            outcomes = producer.send_all(heads, until)
            note(claimed, heads, outcomes)
            tally.update(outcome.state for outcome in outcomes)
            why = next((outcome.why for outcome in outcomes if outcome.state == FAILED), why)
            # Behind one that failed the others of its aggregate wait for the next claim.
            failed = {head.aggregate for head, outcome in zip(heads, outcomes, strict=True) if outcome.state == FAILED}
            waiting = [one for one in waiting if one not in heads and one.aggregate not in failed]
    finally:
        if claimed.promises:
            claimed.note()
    if why:
        log.warning("relay_promises: %d promises wait: %s", tally[FAILED], why)
    return tally, why


def note(claimed: Claim, promises: Sequence[Promise], outcomes: Sequence[Outcome]) -> None:
    """Write down outcomes of promises that this claim still holds; the others belong to a later claim."""
    sent = [promise for promise, outcome in zip(promises, outcomes, strict=True) if outcome.state == SENT]
    noted = claimed.note(sent, state=Promise.State.SENT, sent_at=timezone.now())
    if noted < len(sent):
        log.warning("relay_promises: %d were sent after their lease, maybe twice, with the same key", len(sent) - noted)
    for promise, outcome in zip(promises, outcomes, strict=True):
        if outcome.state == REFUSED:
            log.error("relay_promises: promise %d is refused for good: %s", promise.pk, outcome.why)
            claimed.note([promise], state=Promise.State.REFUSED, error=outcome.why)


def sweep(options: Options) -> int:
    """Delete promises that were sent, or captured, RETENTION_DAYS ago; refused ones stay. Returns how many."""
    before, deleted = timezone.now() - timedelta(days=options.RETENTION_DAYS), 0
    old = all_promises().filter(created_at__lt=before).order_by("created_at")
    for rows in (old.filter(state=Promise.State.SENT, sent_at__lt=before), old.filter(state=Promise.State.CAPTURED)):
        while ids := list(rows.values_list("pk", flat=True)[:SWEPT]):
            deleted += all_promises().filter(pk__in=ids).delete()[0]
    return deleted


# -- The loop ---------------------------------------------------------------------------------------------------
class RelayStuck(Exception):
    """A relay that ends by itself could not send, five times in a row."""


@dataclass
class Relay:
    """Claims and delivers until it is told to stop, or nothing is left to do."""

    options: Options
    producer: Producer | None  # None: a connector sends, this one deletes what is old
    stop: threading.Event
    tally: Counter[str] = field(default_factory=Counter)
    swept_at: float = -SWEEP_SECONDS

    def run(self, until_idle: float | None = None) -> None:
        """Until `stop`, or after `until_idle` seconds with nothing to send. Raises RelayStuck then, when sending fails."""
        failures, idle_since = 0, time.monotonic()
        while not self.stop.is_set():
            moved, why = self._attempt()
            failures = failures + 1 if why else 0
            if moved:
                idle_since = time.monotonic()
            if until_idle is not None and failures == TRIES:
                raise RelayStuck(why)
            if why:
                self.stop.wait(min(0.1 * 2**failures, LONGEST_WAIT))
            elif not moved:
                left = self.options.POLL_SECONDS
                if until_idle is not None and (left := min(left, idle_since + until_idle - time.monotonic())) <= 0:
                    return
                self.stop.wait(left)

    def _attempt(self) -> tuple[int, str]:
        """How many were sent or refused, and why others could not be sent."""
        try:
            return self.tick()
        except (DatabaseError, InterfaceError) as error:
            connections[all_promises().db].close()  # the next try has a new one
            why = f"the database: {' '.join(str(error).split())}"
            log.warning("relay_promises: %s", why)
            return 0, why

    def tick(self) -> tuple[int, str]:
        if time.monotonic() >= self.swept_at + SWEEP_SECONDS:
            sweep(self.options)
            self.swept_at = time.monotonic()
        if self.producer is None:
            return 0, ""
        tally, why = deliver(claim(self.options), self.producer, self.options.patience, self.stop)
        self.tally += tally
        return tally[SENT] + tally[REFUSED], why


def relay_promises(stop: threading.Event, until_idle: float | None = None) -> Counter[str]:
    """Run a relay as SPILLWAY_CLIENT says; how many became what. Raises ImproperlyConfigured, and RelayStuck."""
    options = read_options()
    producer = None if options.DEBEZIUM and not options.BOOTSTRAP_SERVERS else Producer(options)
    relay = Relay(options, producer, stop)
    try:
        relay.run(until_idle)
    finally:
        if producer is not None:
            producer.close()
    return relay.tally
