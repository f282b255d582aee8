"""Everything a customer's page knows, read from the mirror in a few queries, whatever waits."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import accumulate

from django.conf import settings
from django.utils import timezone

from throttler.customers.changes import fault_of_customer
from throttler.customers.models import Customer
from throttler.lanes.models import REPORTED, CustomerPeriod, Lane, LaneOwner
from throttler.limits.forecast import Forecast, Traffic
from throttler.limits.rate import Rates, default_rates
from throttler.messages import microseconds

# -- Five-minute rows of a customer as a line in time --------------------------------------------------------
# What arrived, what left, what waited, how old it was. Pure.
CHARTED = timedelta(hours=12)
PERIOD = timedelta(minutes=5)
RECENT = timedelta(minutes=10)
MINUTES = 5


@dataclass(frozen=True)
class FiveMinutes:
    """What happened in five minutes, over all partitions; the last one may not be over. `length` in seconds."""

    start: datetime
    length: float
    live: int = 0
    buffered: int = 0
    drained: int = 0
    expired: int = 0
    backlog: int = 0

    @property
    def end(self) -> datetime:
        return self.start + timedelta(seconds=self.length)

    @property
    def arrived(self) -> float:
        """A second."""
        return (self.live + self.buffered) / self.length

    @property
    def sent(self) -> float:
        """A second."""
        return (self.live + self.drained) / self.length


@dataclass(frozen=True)
class Timeline:
    """The periods of a day at most, oldest first, without holes."""

    periods: Sequence[FiveMinutes]
    now: datetime

    @classmethod
    def of(cls, rows: Sequence[CustomerPeriod], now: datetime) -> Timeline:
        """From rows in any order, one for each partition and period."""
        if not rows:
            return cls((), now)
        first, last = min(row.start for row in rows), max(start_of(now), max(row.start for row in rows))
        sums: dict[datetime, list[CustomerPeriod]] = {}
        for row in rows:
            sums.setdefault(row.start, []).append(row)
        found: list[FiveMinutes] = []
        start = first
        while start <= last:
            found.append(_period(start, sums.get(start, ()), found[-1].backlog if found else 0, now))
            start += PERIOD
        return cls(tuple(found), now)

    @property
    def charted(self) -> Sequence[FiveMinutes]:
        """The last twelve hours, from when the customer first went over the rate."""
        return [one for one in self.periods if one.start >= self.now - CHARTED]

    @property
    def recent(self) -> Sequence[FiveMinutes]:
        """The last ten to fifteen minutes."""
        return [one for one in self.periods if one.start >= start_of(self.now - RECENT)]

    @property
    def arriving(self) -> float | None:
        """Messages a second of late; None: nobody measured."""
        return _average(self.recent, "live", "buffered")

    @property
    def sent(self) -> float | None:
        """Messages a second that left of late."""
        return _average(self.recent, "live", "drained")

    @property
    def growth(self) -> float:
        """Messages a minute by which the backlog grew of late; negative: it shrank."""
        seconds = sum(one.length for one in self.recent)
        grown = sum(one.buffered - one.drained - one.expired for one in self.recent)
        return grown * 60 / seconds if seconds else 0.0

    @property
    def expired_today(self) -> int:
        return sum(one.expired for one in self.periods if one.start.date() == self.now.date())

    @property
    def went_over(self) -> datetime | None:
        """When the first message of this line went into the buffer."""
        return next((one.start for one in self.periods if one.buffered), None)

    def ages(self) -> list[float | None]:
        """The age of the oldest message at the end of each charted period, in seconds; None: older than these rows.

        What waits is the newest of what was buffered, since they leave in order.
        """
        sums = [0, *accumulate(one.buffered for one in self.periods)]
        ends = range(len(self.periods) - len(self.charted), len(self.periods))
        return [self._age(end, sums) for end in ends]

    def _age(self, end: int, sums: Sequence[int]) -> float | None:
        last = self.periods[end]
        gone = sums[end + 1] - last.backlog  # how many of those buffered in this line had left by then
        if gone < 0 or not last.backlog:
            return None if last.backlog else 0.0
        at = bisect_right(sums, gone, 0, end + 1) - 1
        found = self.periods[at]
        sent = found.start + timedelta(seconds=found.length * (gone - sums[at]) / found.buffered)
        return (last.end - sent).total_seconds()


def start_of(moment: datetime) -> datetime:
    """When the five minutes around a moment began."""
    return moment.replace(minute=moment.minute - moment.minute % MINUTES, second=0, microsecond=0)


def _period(start: datetime, rows: Sequence[CustomerPeriod], before: int, now: datetime) -> FiveMinutes:
    length = min(PERIOD, max(now - start, timedelta(seconds=1))).total_seconds()
    if not rows:
        return FiveMinutes(start, length, backlog=before)
    names = ("live", "buffered", "drained", "expired", "backlog")
    return FiveMinutes(start, length, *(sum(getattr(row, name) for row in rows) for name in names))


def _average(periods: Sequence[FiveMinutes], *names: str) -> float | None:
    seconds = sum(one.length for one in periods)
    return sum(getattr(one, name) for one in periods for name in names) / seconds if seconds else None


# -- Everything a customer's page knows, read from the mirror in a few queries, whatever waits ---------------
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
    def outlook(self) -> Forecast:
        return Forecast(self.traffic, self.leaving)

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

    def after(self, rates: Rates, ttl: int | None = None) -> Forecast:
        """The forecast at other rates, or with another lifetime in seconds."""
        found = traffic_of(self.row, self.lanes, self.timeline.arriving or 0.0, self.now)
        if ttl is not None:
            found = Traffic(found.backlog, found.oldest, found.arriving, float(ttl), found.now_us, found.quota)
        return Forecast(found, found.leaving(rates))


def situation_of(row: Customer, now: datetime) -> Situation:
    """Three queries: the lanes, the owners, and the five-minute rows of a day."""
    lanes = Lane.objects.filter(customer_id=row.pk).order_by("partition")[:MOST_LANES]
    owners = list(LaneOwner.objects.order_by("-updated_at")[:MOST_OWNERS])
    periods = CustomerPeriod.objects.filter(customer_id=row.pk, start__gte=now - KNOWN)
    # Behind the last report nothing is known: counted as time without messages, it would look like a fall.
    told = min(now, owners[0].updated_at) if owners else now
    return Situation(row, list(lanes), owners, Timeline.of(list(periods.order_by("start")), told), now)
