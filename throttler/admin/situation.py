"""Everything a customer's page knows, read from the mirror in a few queries, whatever waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from django.conf import settings
from django.utils import timezone

from throttler.admin.periods import Timeline
from throttler.customers.changes import fault_of_customer
from throttler.customers.models import Customer
from throttler.lanes.models import REPORTED, CustomerPeriod, Lane, LaneOwner
from throttler.limits.configured import default_rates
from throttler.limits.outlook import Outlook, Traffic
from throttler.limits.rate import Rates
from throttler.moments import microseconds

KNOWN = timedelta(days=1)
MOST_OWNERS = 100
MOST_LANES = 20


def customer_of(customer_id: str) -> Customer | None:
    """The row of a customer, an unsaved one for who has none but was seen over the rate, or None."""
    if fault_of_customer(customer_id):
        return None
    found = Customer.objects.filter(pk=customer_id).first()
    if found is None and (
        Lane.objects.filter(customer_id=customer_id).exists()
        or CustomerPeriod.objects.filter(customer_id=customer_id).exists()
    ):
        return without_row(customer_id)
    return found


def without_row(customer_id: str) -> Customer:
    """Who has no row sends at the default rate."""
    now = timezone.now()
    return Customer(pk=customer_id, rates=settings.THROTTLER_DEFAULT_RATE, created_at=now, updated_at=now)


def has_row(row: Customer) -> bool:
    return not row._state.adding


def ttl_of(row: Customer) -> int:
    """How long a message lives that names no time, in seconds."""
    return settings.THROTTLER_TTL_SECONDS if row.ttl_seconds is None else row.ttl_seconds


def traffic_of(row: Customer, lanes: Sequence[Lane], arriving: float, now: datetime) -> Traffic:
    """The lanes of a customer as the forecast takes them. There is more than one only while partitions are added."""
    waiting = [lane for lane in lanes if lane.backlog > 0]
    oldest = min((lane.oldest_at for lane in waiting if lane.oldest_at), default=now)
    backlog = sum(lane.backlog for lane in waiting)
    quota = [one for lane in lanes for one in lane.limiter.get("quota", [])]
    age = max(1.0 if backlog else 0.0, (now - oldest).total_seconds())
    return Traffic(backlog, age, arriving, float(ttl_of(row)), microseconds(now), quota)


@dataclass(frozen=True)
class Situation:
    """A customer as the mirror and the owners' reports show them."""

    row: Customer
    lanes: Sequence[Lane]
    owners: Sequence[LaneOwner]  # newest report first
    timeline: Timeline
    now: datetime

    @cached_property
    def reporting(self) -> list[LaneOwner]:
        return [owner for owner in self.owners if owner.updated_at > self.now - REPORTED]

    @property
    def last_report(self) -> datetime | None:
        return self.owners[0].updated_at if self.owners else None

    def owner_of(self, lane: Lane) -> LaneOwner | None:
        return next((owner for owner in self.reporting if lane.partition in owner.partitions), None)

    @property
    def owned(self) -> bool:
        """Whether somebody works on all that waits; without it there is nothing to forecast."""
        return bool(self.reporting) and all(self.owner_of(lane) for lane in self.lanes if lane.backlog > 0)

    @property
    def at_least_once(self) -> bool:
        """Whether a process that works now sends without transactions."""
        return not all(owner.transactions for owner in self.reporting)

    @cached_property
    def rates(self) -> Rates:
        return self.row.allowed

    @property
    def named_rates(self) -> Rates:
        """The windows as they are set, also while the customer is held; the default where they are none."""
        found = self.row.rates_set
        return default_rates() if found.held else found

    @property
    def zero(self) -> bool:
        """Whether the rate itself is 0/s."""
        return self.row.rates_set.held

    @cached_property
    def traffic(self) -> Traffic:
        return traffic_of(self.row, self.lanes, self.timeline.arriving or 0.0, self.now)

    @property
    def leaving(self) -> float:
        return self.traffic.leaving(self.rates)

    @cached_property
    def outlook(self) -> Outlook:
        return Outlook(self.traffic, self.leaving)

    @property
    def growth(self) -> float:
        """Messages a minute by which the backlog grows from now on, as the forecast has it; negative: it shrinks.

        The average of the last minutes would speak of the time before a hold, or before another rate.
        """
        if not self.owned or self.timeline.arriving is None:
            return self.timeline.growth
        expiring = self.outlook.expires_in is not None and self.outlook.expires_in < 1
        lost = self.outlook.lost_per_second if expiring else 0.0
        return 60 * (self.timeline.arriving - self.leaving - lost)

    def after(self, rates: Rates, ttl: int | None = None) -> Outlook:
        """The forecast at other rates, or with another lifetime in seconds."""
        found = traffic_of(self.row, self.lanes, self.timeline.arriving or 0.0, self.now)
        if ttl is not None:
            found = Traffic(found.backlog, found.oldest, found.arriving, float(ttl), found.now_us, found.quota)
        return Outlook(found, found.leaving(rates))


def situation_of(row: Customer, now: datetime) -> Situation:
    """Three queries: the lanes, the owners, and the five-minute rows of a day."""
    lanes = Lane.objects.filter(customer_id=row.pk).order_by("partition")[:MOST_LANES]
    owners = list(LaneOwner.objects.order_by("-updated_at")[:MOST_OWNERS])
    periods = CustomerPeriod.objects.filter(customer_id=row.pk, start__gte=now - KNOWN)
    # Behind the last report nothing is known: counted as time without messages, it would look like a fall.
    told = min(now, owners[0].updated_at) if owners else now
    return Situation(row, list(lanes), owners, Timeline.of(list(periods.order_by("start")), told), now)
