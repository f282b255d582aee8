"""Customers as the read model shows them: what waits, how fast it arrives, who works on it, and the forecast."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import accumulate
from typing import TypeVar

from django.conf import settings
from django.db.models import Min
from django.utils import timezone

from throttler.customers.changes import fault_of_customer, without_row
from throttler.customers.models import Customer
from throttler.lanes.models import REPORTED, CustomerPeriod, Lane, LaneOwner
from throttler.lanes.read_model import PERIOD, period_of
from throttler.limits.forecast import Forecast, Traffic
from throttler.limits.rate import Rates, default_rates
from throttler.messages import microseconds

# -- A customer's five-minute rows as a line in time; pure --------------------------------------------------
CHARTED = timedelta(hours=12)
RECENT = timedelta(minutes=10)


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
    def of(cls, rows: Sequence[CustomerPeriod], now: datetime, begun: datetime | None = None) -> Timeline:
        """From rows in any order, one for each partition and period. `begun`: since then nothing came without a row."""
        starts = [row.start for row in rows] + ([begun] if begun else [])
        if not starts:
            return cls((), now)
        first, last = min(starts), max(period_of(now), *starts)
        sums: dict[datetime, list[CustomerPeriod]] = {}
        for row in rows:
            sums.setdefault(row.start, []).append(row)
        periods: list[FiveMinutes] = []
        start = first
        while start <= last:
            periods.append(_period(start, sums.get(start, ()), periods[-1].backlog if periods else 0, now))
            start += PERIOD
        return cls(tuple(periods), now)

    @property
    def charted(self) -> Sequence[FiveMinutes]:
        """The last twelve hours, from when the customer first went over the rate."""
        return [one for one in self.periods if one.start >= self.now - CHARTED]

    @property
    def recent(self) -> Sequence[FiveMinutes]:
        """The last ten to fifteen minutes."""
        return [one for one in self.periods if one.start >= period_of(self.now - RECENT)]

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
        period = self.periods[at]
        sent = period.start + timedelta(seconds=period.length * (gone - sums[at]) / period.buffered)
        return (last.end - sent).total_seconds()


def _period(start: datetime, rows: Sequence[CustomerPeriod], before: int, now: datetime) -> FiveMinutes:
    length = min(PERIOD, max(now - start, timedelta(seconds=1))).total_seconds()
    if not rows:
        return FiveMinutes(start, length, backlog=before)
    names = ("live", "buffered", "drained", "expired", "backlog")
    return FiveMinutes(start, length, *(sum(getattr(row, name) for row in rows) for name in names))


def _average(periods: Sequence[FiveMinutes], *names: str) -> float | None:
    seconds = sum(one.length for one in periods)
    return sum(getattr(one, name) for one in periods for name in names) / seconds if seconds else None


# -- A customer's situation: the row, the lanes, their owners, the timeline ----------------------------------
KNOWN = timedelta(days=1)
MOST_OWNERS = 100
MOST_LANES = 20
SOON = 43_200  # seconds


def customer_of(customer_id: str) -> Customer | None:
    """The row of a customer, an unsaved one for who has none but was seen over the rate, or None."""
    if fault_of_customer(customer_id):
        return None
    row = Customer.objects.filter(pk=customer_id).first()
    if row is None and (
        Lane.objects.filter(customer_id=customer_id).exists()
        or CustomerPeriod.objects.filter(customer_id=customer_id).exists()
    ):
        return without_row(customer_id, timezone.now())
    return row


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
    """A customer as the read model and the owners' reports show them."""

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
        return default_rates() if self.zero else self.row.rates_set

    @property
    def zero(self) -> bool:
        """Whether the rate itself is 0/s."""
        return self.row.rates_set.held

    @cached_property
    def traffic(self) -> Traffic:
        return traffic_of(self.row, self.lanes, self.timeline.arriving or 0.0, self.now)

    @cached_property
    def forecast(self) -> Forecast:
        return self.at(self.rates)

    def at(self, rates: Rates) -> Forecast:
        """The forecast at other rates."""
        return Forecast(self.traffic, rates)

    @property
    def soon(self) -> bool:
        """Whether messages expire within half a day: what lies further ahead changes before."""
        return self.forecast.expires_in is not None and self.forecast.expires_in < SOON

    @property
    def growth(self) -> float:
        """Messages a minute by which the backlog grows from now on, as the forecast has it; negative: it shrinks.

        The average of the last minutes would speak of the time before a hold, or before another rate.
        """
        if not self.owned or self.timeline.arriving is None:
            return self.timeline.growth
        expiring = self.forecast.expires_in is not None and self.forecast.expires_in < 1
        lost = self.forecast.lost_per_second if expiring else 0.0
        return 60 * (self.timeline.arriving - self.forecast.leaving - lost)


def situation_of(row: Customer, now: datetime) -> Situation:
    """Three queries: the owners, the lanes, and the five-minute rows of a day."""
    owners, reported = _owners(now)
    lanes = Lane.objects.filter(customer_id=row.pk).order_by("partition")[:MOST_LANES]
    periods = CustomerPeriod.objects.filter(customer_id=row.pk, start__gte=now - KNOWN)
    return Situation(row, list(lanes), owners, Timeline.of(list(periods.order_by("start")), reported), now)


def situations_of(rows: Sequence[Customer], now: datetime) -> list[Situation]:
    """The same for many customers, with a timeline of the last minutes only: four queries, and the same forecasts."""
    names = [row.pk for row in rows]
    owners, reported = _owners(now)
    recent = period_of(reported - RECENT)
    lanes = _by_customer(Lane.objects.filter(customer_id__in=names).order_by("partition"))
    periods = CustomerPeriod.objects.filter(customer_id__in=names, start__gte=now - KNOWN)
    begun = dict(periods.values("customer_id").order_by().values_list("customer_id", Min("start")))
    lately = _by_customer(periods.filter(start__gte=recent))

    def timeline(name: str) -> Timeline:
        since = begun.get(name)
        return Timeline.of(lately.get(name, []), reported, max(since, recent) if since else None)

    return [Situation(row, lanes.get(row.pk, [])[:MOST_LANES], owners, timeline(row.pk), now) for row in rows]


def _owners(now: datetime) -> tuple[list[LaneOwner], datetime]:
    """The owners, and when they last said something."""
    owners = list(LaneOwner.objects.order_by("-updated_at")[:MOST_OWNERS])
    # Behind the last report nothing is known: counted as time without messages, it would look like a fall.
    return owners, min(now, owners[0].updated_at) if owners else now


OfCustomer = TypeVar("OfCustomer", Lane, CustomerPeriod)


def _by_customer(rows: Iterable[OfCustomer]) -> dict[str, list[OfCustomer]]:
    groups: dict[str, list[OfCustomer]] = {}
    for row in rows:
        groups.setdefault(row.customer_id, []).append(row)
    return groups
