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


def is_healthy(channel: str, now: datetime) -> bool:
    """The listener's heartbeat is fresh, and nothing due has been left lying for longer than the grace period."""
    beats = Watermark.objects.of_group(GROUP).running().filter(updated_at__gt=now - HEARTBEAT)
    if not beats.exists():
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
    newest = ChannelState.objects.aggregate(newest=Max("cdc_seen_at"))["newest"]
    if newest is None:
        return None
    beyond = OutboxMessage.objects.from_id(smallest_uuid7(int(newest.timestamp() * 1000) + 1)).order_by("id")
    oldest = beyond.values_list("created_at", flat=True).first()
    return max(0.0, (now - oldest).total_seconds()) if oldest else 0.0
