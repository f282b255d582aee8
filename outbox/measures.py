"""Numbers of the outbox for home and /metrics: counters, and bounded look-ups in the small partial indexes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from django.conf import settings

from config.flows import Reading
from config.kafka import topic_name
from config.telemetry import metrics
from outbox.bookkeeping import progress
from outbox.bookkeeping.progress import Progress
from outbox.bookkeeping.stages import Trends
from outbox.channels.handlers import handlers
from outbox.channels.models import ChannelState
from outbox.letters import overview
from outbox.messages.models import FLOW, IdempotencyKey, OutboxMessage
from outbox.workers.cdc_health import GROUP, cdc_lag

MOST = 100_000


def gauges(now: datetime) -> Iterator[Reading]:
    """What /metrics says of the outbox."""
    numbers = Numbers(now)
    yield Reading(metrics.OUTBOX_PENDING, numbers.pending)
    yield Reading(metrics.OUTBOX_OLDEST_PENDING, numbers.overdue.total_seconds())
    yield Reading(metrics.OUTBOX_STUCK, numbers.stuck)
    yield Reading(metrics.OUTBOX_HELD, len(numbers.held))
    yield Reading(metrics.KEYS_OVERDUE, numbers.keys_overdue.total_seconds())
    if numbers.cdc_lag is not None:
        yield Reading(metrics.CDC_LAG, numbers.cdc_lag)
    for state in numbers.channels:
        yield Reading(metrics.BREAKER_OPEN, state.breaker == ChannelState.Breaker.OPEN, {"channel": state.name})
        yield Reading(metrics.CHANNEL_PAUSED, state.paused, {"channel": state.name})
    yield from overview.gauges([FLOW])
    yield from progress.gauges(numbers.progress)


@dataclass
class Numbers(Trends):
    """The numbers of one page or scrape; each is read once."""

    names: Sequence[str] = (FLOW,)
    channel_names: Sequence[str] = field(default_factory=lambda: sorted(handlers()))

    @cached_property
    def pending(self) -> int:
        return OutboxMessage.objects.pending().order_by()[:MOST].count()

    @cached_property
    def first_due(self) -> dict[str, datetime]:
        """When the message of each channel became due that has been waiting longest there."""
        firsts = {
            name: OutboxMessage.objects.due(name, self.now).values_list("available_at", flat=True).first()
            for name in self.channel_names
        }
        return {name: first for name, first in firsts.items() if first}

    @property
    def due_since(self) -> datetime | None:
        return min(self.first_due.values(), default=None)

    @property
    def overdue(self) -> timedelta:
        return max(timedelta(0), self.now - self.due_since) if self.due_since else timedelta(0)

    @property
    def neglected_since(self) -> datetime | None:
        """Since when a message could have been sent: behind a closed channel it counts from when that opened."""
        opened = {state.name: state.open_since for state in self.channels}
        found = (max(first, opened.get(name) or first) for name, first in self.first_due.items())
        return min(found, default=None)

    @cached_property
    def processing(self) -> int:
        return OutboxMessage.objects.filter(state="processing").order_by()[:MOST].count()

    @cached_property
    def stuck(self) -> int:
        """Messages whose lease ran out a minute ago, and that recovery has not found."""
        return OutboxMessage.objects.lost(self.now - timedelta(seconds=60)).order_by()[:MOST].count()

    @cached_property
    def uncertain(self) -> list[datetime]:
        """When each uncertain message is (or was) to be decided, oldest first; at most a thousand."""
        found = OutboxMessage.objects.uncertain().order_by("available_at")
        return list(found.values_list("available_at", flat=True)[:1000])

    @property
    def held(self) -> list[datetime]:
        """Uncertain messages whose time is over: they wait for a person."""
        return [at for at in self.uncertain if at < self.now - timedelta(seconds=60)]

    @property
    def keys_overdue(self) -> timedelta:
        """How late the daily sweep of keys is."""
        oldest = IdempotencyKey.objects.order_by("created_at").values_list("created_at", flat=True).first()
        window = timedelta(days=settings.OUTBOX_IDEMPOTENCY_DAYS)
        return max(timedelta(0), self.now - oldest - window) if oldest else timedelta(0)

    @cached_property
    def channels(self) -> list[ChannelState]:
        return list(ChannelState.objects.order_by("name"))

    @cached_property
    def progress(self) -> Progress:
        return Progress.of(topic_name(GROUP), [topic_name(settings.OUTBOX_CDC_TOPIC)], self.now)

    @cached_property
    def kafka_away(self) -> datetime | None:
        """Since when Kafka does not answer: also where nothing listens to a topic, a channel may lead there."""
        return progress.kafka_away(self.now)

    @cached_property
    def cdc_lag(self) -> float | None:
        """Seconds; None while no listener was ever started."""
        return cdc_lag(self.now) if self.progress.rows else None
