"""The relay: claims and delivers the messages of one channel, again at once while there are more."""

from __future__ import annotations

import random
import threading
import time
from datetime import timedelta

from django.conf import settings

from config.database.clock import database_now
from config.telemetry import metrics
from outbox.channels.handlers import MessageHandler
from outbox.delivery import expiry, reconcile
from outbox.delivery.candidates import lower_bound
from outbox.delivery.claim import claim
from outbox.delivery.deliver import deliver
from outbox.delivery.rescue import rescue
from outbox.messages.models import OutboxMessage
from outbox.workers import doorbell
from outbox.workers.cdc_health import Grace

FIRST_SLEEP, LONGEST_SLEEP = 0.05, 2.0  # without a doorbell
CHORES_SECONDS = 15.0


class Relay:
    """One worker of one channel; any number may run side by side (on SQLite they take turns)."""

    def __init__(self, handler: MessageHandler, stop: threading.Event, longest_sleep: float | None = None) -> None:
        self.handler = handler
        self.stop = stop
        self.longest_sleep = min(settings.OUTBOX_POLL_SECONDS, longest_sleep or settings.OUTBOX_POLL_SECONDS)
        self.doorbell = doorbell.Doorbell(stop)
        self.grace = Grace(handler.name)
        self.sleep = FIRST_SLEEP
        self.chores_at = 0.0
        self.look_again: float | None = None

    def tick(self) -> int:
        """One round; returns how many messages it moved."""
        if time.monotonic() >= self.chores_at:
            self._do_chores()
        started = time.perf_counter()
        found = claim(self.handler, "poll", settings.OUTBOX_BATCH, older_than=self.grace.read())
        deliver(found, self.handler, self.stop)
        again = found.look_again
        self.look_again = (again - found.now).total_seconds() if again else None
        if found.looked_at:
            metrics.OUTBOX_POLL_SECONDS.observe(time.perf_counter() - started)
            self.sleep = FIRST_SLEEP
        return found.looked_at

    def _do_chores(self) -> None:
        """What beat does each minute, in case no beat runs."""
        self.chores_at = time.monotonic() + CHORES_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311
        rescue(database_now())
        reconcile.decide(self.handler)
        expiry.expire_due(self.handler.name)

    def pause(self) -> float:
        """Wait for a NOTIFY, the next due message or the next poll, whichever comes first."""
        if self.look_again is not None:
            # The channel may not send now, and no commit changes that.
            self.stop.wait(max(0.0, min(self.look_again, self.longest_sleep)))
            return 0.0
        longest = min(self.longest_sleep, self._until_next(), self.chores_at - time.monotonic() + 0.01)
        if self.doorbell.listens and not self.grace.read():
            self.doorbell.wait(self.doorbell.longest_wait(max(longest, 0.0)))
            return 0.0
        wait = max(0.0, min(longest, self.sleep))
        self.sleep = min(self.sleep * 2, LONGEST_SLEEP)
        return wait

    def _until_next(self) -> float:
        """Seconds until the first pending message of the channel is due."""
        rows = OutboxMessage.objects.in_channel(self.handler.name).pending().from_id(lower_bound.read())
        first = rows.order_by("available_at", "id").values_list("available_at", "created_at").first()
        if first is None:
            return self.longest_sleep
        available_at, created_at = first
        due = max(available_at, created_at + self.grace.read())
        left = (due - database_now() + timedelta(milliseconds=1)).total_seconds()
        # Due, and yet not claimed: another worker is claiming it at this moment.
        return left if left > 0 else FIRST_SLEEP

    def close(self) -> None:
        self.doorbell.close()
