"""The relay: claims and delivers the messages of one channel; waits for commits by LISTEN or a short sleep."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from config.database.clock import database_now
from config.database.dialects.vendors import is_pooled
from config.telemetry import metrics
from config.telemetry.logs import log
from outbox.channels.handlers import MessageHandler
from outbox.delivery import overdue
from outbox.delivery.candidates import is_due, lower_bound
from outbox.delivery.claim import claim
from outbox.delivery.deliver import deliver
from outbox.delivery.overdue import rescue
from outbox.messages.models import OutboxMessage
from outbox.messages.notify import CHANNEL, PAUSE
from outbox.workers.change_capture import Grace

# -- Waits until messages are committed: LISTEN on PostgreSQL, a short sleep elsewhere -----------------------
FIRST_LOOK, LONGEST_LOOK = 0.015, 0.1  # seconds before a look shortly after a NOTIFY; twice as long each time
LOOKING = 1.5 * PAUSE  # seconds of such looks; more than PAUSE, because the next NOTIFY may be a little late
SLICE = 0.25  # seconds after which a wait checks whether the process is to stop


class Doorbell:
    """Waits for NOTIFY on a connection of its own; without PostgreSQL, or behind a pooler, it only sleeps."""

    def __init__(self, stop: threading.Event, using: str = DEFAULT_DB_ALIAS) -> None:
        self.stop = stop
        self.using = using
        self._listener: BaseDatabaseWrapper | None = None
        self.listens = connections[using].vendor == "postgresql" and not is_pooled(using)
        self._look_until = 0.0

    def longest_wait(self, seconds: float, look: float) -> float:
        """`seconds`, or `look` shortly after a NOTIFY: commits send no second one then, so the relay looks for them."""
        return min(seconds, look) if time.monotonic() < self._look_until else seconds

    def wait(self, seconds: float) -> bool:
        """Whether a NOTIFY arrived within `seconds`."""
        if not self.listens:
            self.stop.wait(seconds)
            return False
        deadline = time.monotonic() + seconds
        while not self.stop.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if self._notified(min(left, SLICE)):
                self._look_until = time.monotonic() + LOOKING
                return True
        return False

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _notified(self, seconds: float) -> bool:
        try:
            if self._listener is None:
                self._listen()
                return True  # of a commit before LISTEN we get no NOTIFY
            return any(True for _ in self._listener.connection.notifies(timeout=seconds, stop_after=1))
        except Exception as error:  # noqa: BLE001 (polling finds the messages, too)
            log.warning("doorbell_lost", error=str(error).strip())
            self.close()
            self.stop.wait(seconds)
            return False

    def _listen(self) -> None:
        listener = connections[self.using].copy()
        self._listener = listener
        with listener.cursor() as cursor:
            cursor.execute(f"LISTEN {CHANNEL}")


# -- The relay: claims and delivers the messages of one channel, again at once while there are more ----------
FIRST_SLEEP, LONGEST_SLEEP = 0.05, 2.0  # without a doorbell
CHORES_SECONDS = 15.0


class Relay:
    """One worker of one channel; any number may run side by side (on SQLite they take turns)."""

    def __init__(self, handler: MessageHandler, stop: threading.Event, longest_sleep: float | None = None) -> None:
        self.handler = handler
        self.stop = stop
        self.longest_sleep = min(settings.OUTBOX_POLL_SECONDS, longest_sleep or settings.OUTBOX_POLL_SECONDS)
        self.doorbell = Doorbell(stop)
        self.grace = Grace(handler.name)
        self.sleep = FIRST_SLEEP
        self.chores_at = 0.0
        self.look_again: float | None = None
        self.clock: Callable[[], datetime] = database_now

    def tick(self) -> int:
        """One round; returns how many messages it moved."""
        if time.monotonic() >= self.chores_at:
            self._do_chores()
        started = time.perf_counter()
        claimed = claim(self.handler, "poll", settings.OUTBOX_BATCH, older_than=self.grace.read())
        self.clock = claimed.clock
        deliver(claimed, self.handler, self.stop)
        again = claimed.look_again
        self.look_again = (again - claimed.now).total_seconds() if again else None
        if claimed.looked_at:
            metrics.OUTBOX_POLL_SECONDS.observe(time.perf_counter() - started)
            self.sleep = FIRST_SLEEP
        return claimed.looked_at

    def _do_chores(self) -> None:
        """What beat does each minute, in case no beat runs."""
        self.chores_at = time.monotonic() + CHORES_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311
        rescue(database_now())
        overdue.decide_uncertain(self.handler)
        overdue.expire_due(self.handler.name)

    def pause(self) -> float:
        """Wait for a NOTIFY, the next due message or the next poll, whichever comes first."""
        if self.look_again is not None:
            # The channel may not send now, and no commit changes that.
            self.stop.wait(max(0.0, min(self.look_again, self.longest_sleep)))
            return 0.0
        longest = min(self.longest_sleep, self._until_next(), self.chores_at - time.monotonic() + 0.01)
        if self.doorbell.listens and not self.grace.read():
            self._wait_for_commits(longest)
            return 0.0
        wait = max(0.0, min(longest, self.sleep))
        self.sleep = min(self.sleep * 2, LONGEST_SLEEP)
        return wait

    def _wait_for_commits(self, seconds: float) -> None:
        """Until a NOTIFY, or until something is due shortly after one.

        A look is one small query, an eighth of a claim: at four messages a second a relay that claimed instead took a
        third of a processor.
        """
        until, look = time.monotonic() + seconds, FIRST_LOOK
        while not self.stop.is_set() and (left := until - time.monotonic()) > 0:
            patience = self.doorbell.longest_wait(left, look)
            if self.doorbell.wait(patience) or (patience < left and is_due(self.handler.name, self.clock())):
                return
            look = min(look * 2, LONGEST_LOOK)

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
