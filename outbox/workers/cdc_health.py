"""Whether the CDC path is alive, judged by what it did and never by consumer lag, which stays 0 when Debezium is dead."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db.models import Max

from config.database.clock import database_now
from config.uuid7 import smallest_uuid7
from outbox.bookkeeping.models import Watermark
from outbox.channels.models import ChannelState
from outbox.delivery.candidates import lower_bound
from outbox.messages.models import OutboxMessage

GROUP = "outbox-listen"
HEARTBEAT = timedelta(seconds=10)
REMEMBER = 1.0  # seconds
STORED_WITHIN = 2.0  # seconds after it was brought; a listener does it once a second


def is_healthy(channel: str, now: datetime) -> bool:
    """The listener's heartbeat is fresh; what was written longer ago than the grace period has been brought, and none of
    it that is due lies about.

    A listener beats on when Debezium is dead, and then nothing lies about for long, because the poller sends it: only
    what was brought shows it.
    """
    beats = Watermark.objects.of_group(GROUP).running().filter(updated_at__gt=now - HEARTBEAT)
    if not beats.exists() or _age_beyond(_newest(), now) > settings.OUTBOX_GRACE_SECONDS + STORED_WITHIN:
        return False
    overdue = now - timedelta(seconds=settings.OUTBOX_GRACE_SECONDS)
    return not OutboxMessage.objects.due(channel, overdue).from_id(lower_bound.read()).older_than(overdue).exists()


class Grace:
    """How old a message must be before the poller takes it from CDC: nothing at all unless CDC is healthy."""

    def __init__(self, channel: str) -> None:
        self.channel = channel
        self._value = timedelta(0)
        self._until = 0.0
        self._lock = threading.Lock()

    def read(self) -> timedelta:
        with self._lock:
            if time.monotonic() >= self._until:
                healthy = is_healthy(self.channel, database_now())
                self._value = timedelta(seconds=settings.OUTBOX_GRACE_SECONDS if healthy else 0)
                self._until = time.monotonic() + REMEMBER
            return self._value


def seen(newest_ms: int, now: datetime) -> None:
    """Store that the CDC path has brought everything up to an id of this time.

    At most up to now: an id from the far future would make CDC look alive for ever.
    """
    moment = datetime.fromtimestamp(min(newest_ms / 1000, now.timestamp()), UTC)
    ChannelState.objects.exclude(cdc_seen_at__gte=moment).update(cdc_seen_at=moment)


def cdc_lag(now: datetime) -> float | None:
    """Age in seconds of the oldest message whose id lies beyond what CDC has brought, 0.0 when none does; None
    where no listener has ever brought anything."""
    newest = _newest()
    return None if newest is None else _age_beyond(newest, now)


def _newest() -> datetime | None:
    newest: datetime | None = ChannelState.objects.aggregate(newest=Max("cdc_seen_at"))["newest"]
    return newest


def _age_beyond(newest: datetime | None, now: datetime) -> float:
    """Seconds since the first message was written that is younger than `newest`; where that is None, any message."""
    lowest = 0 if newest is None else int(newest.timestamp() * 1000) + 1
    beyond = OutboxMessage.objects.from_id(smallest_uuid7(lowest)).order_by("id")
    oldest = beyond.values_list("created_at", flat=True).first()
    return max(0.0, (now - oldest).total_seconds()) if oldest else 0.0
