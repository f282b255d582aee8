"""The throttler in numbers, for home and /metrics: totals, whose messages are given up first, who owns what."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice
from typing import Any

from django.conf import settings
from django.db.models import Min, OuterRef, QuerySet, Subquery
from django.urls import NoReverseMatch, reverse

from config.admin import humanize
from config.flows import Need, Stage
from outbox.bookkeeping.progress import reader_stage, topic_stage
from outbox.letters.topic_flow import TopicNumbers
from throttler.customers.changes import without_row
from throttler.customers.models import Customer
from throttler.customers.situation import Situation, situations_of
from throttler.engine.output_transaction import INPUT
from throttler.engine.partition import OUT
from throttler.lanes.models import Lane

# -- Whose messages are nearest to the end of their life -----------------------------------------------------
MOST = 1000  # lanes that are looked at, of those that wait longest
MOST_FORECAST = 100  # customers whose forecast is made, of those nearest to the end


@dataclass(frozen=True)
class NearestEnd:
    """A lane whose oldest message began at `since`; it lives `ttl` seconds unless it names a shorter time itself."""

    customer_id: str
    since: datetime
    ttl: int

    @property
    def until(self) -> datetime:
        return self.since + timedelta(seconds=self.ttl)

    def used(self, now: datetime) -> float:
        """How much of its life is over, of 1."""
        return max(0.0, (now - self.since).total_seconds()) / self.ttl


def nearest_ends(now: datetime) -> list[NearestEnd]:
    """The lanes that wait longest, and those that wait longest among customers with a shorter life; nearest first."""
    shorter = Customer.objects.filter(ttl_seconds__lt=settings.THROTTLER_TTL_SECONDS).values("pk")
    waiting = Lane.objects.waiting()
    ends = [*_ends(waiting), *_ends(waiting.filter(customer_id__in=shorter))]
    return sorted(ends, key=lambda end: end.used(now), reverse=True)


def _ends(lanes: QuerySet[Lane]) -> Iterator[NearestEnd]:
    own = Customer.objects.filter(pk=OuterRef("customer_id")).values("ttl_seconds")
    rows: Any = lanes.filter(oldest_at__isnull=False).annotate(own=Subquery(own[:1])).order_by("oldest_at")
    for customer_id, since, ttl in rows.values_list("customer_id", "oldest_at", "own")[:MOST]:
        yield NearestEnd(customer_id, since, settings.THROTTLER_TTL_SECONDS if ttl is None else ttl)


def still_expiring(customers: Collection[str], now: datetime) -> list[str]:
    """Whose oldest messages are near their end, of these customers: home names the nearest one alone."""
    lanes = Lane.objects.waiting().filter(customer_id__in=customers)
    return [end.customer_id for end in _ends(lanes) if end.used(now) > NEAR]


@dataclass(frozen=True)
class Expiring:
    """A customer whose oldest message is near its end, with the forecast of their page."""

    end: NearestEnd
    situation: Situation

    @property
    def first(self) -> datetime | None:
        """When the first message is given up; None: none is at today's rate, or nobody works on them."""
        seconds = self.situation.forecast.expires_in if self.situation.owned else None
        return None if seconds is None else self.situation.now + timedelta(seconds=seconds)

    @property
    def until(self) -> datetime | None:
        """When somebody must have acted: the oldest leaves by itself where somebody works on it; None: by then all leave."""
        return self.first if self.situation.owned else self.end.until


def expiring(ends: Iterable[NearestEnd], now: datetime) -> Expiring | None:
    """Whose messages are given up first; of those whose all leave in time, whose are nearest to their end."""
    nearest: dict[str, NearestEnd] = {}
    for end in islice(ends, MOST_FORECAST):
        nearest.setdefault(end.customer_id, end)
    if not nearest:
        return None
    rows = Customer.objects.in_bulk(list(nearest))
    situations = situations_of([rows.get(name) or without_row(name, now) for name in nearest], now)
    shown = [Expiring(nearest[one.row.pk], one) for one in situations]
    return min(shown, key=lambda one: (one.until is None, one.until or one.end.until))


# -- The throttler in numbers --------------------------------------------------------------------------------
NEAR = 0.8  # of its life: from then on somebody should look
SOON = timedelta(hours=2)  # messages that are lost within this are for now


@dataclass
class ThrottlerNumbers(TopicNumbers):
    """What home and /metrics say of lanes and of the messages that wait in them."""

    @property
    def backlog(self) -> int:
        """What was buffered and has not left: the sum over all lanes, without adding them up."""
        return max(0, self.totals["buffered"] - sum(self.totals[name] for name in OUT))

    @property
    def oldest_age(self) -> timedelta:
        """Of the message that was created first of those that wait."""
        since = min((end.since for end in self.ends), default=self.now)
        return max(timedelta(0), self.now - since)

    @cached_property
    def ends(self) -> list[NearestEnd]:
        """Lanes by how much of its life their oldest message has used, most first."""
        return nearest_ends(self.now)

    @property
    def used(self) -> float:
        """How much of its life the message nearest to its end has used, of 1."""
        return self.ends[0].used(self.now) if self.ends else 0.0

    @cached_property
    def expiring(self) -> Expiring | None:
        """At whom somebody should look before messages expire."""
        return expiring((end for end in self.ends if end.used(self.now) > NEAR), self.now)

    @cached_property
    def customers(self) -> int:
        """Lanes that wait; counted up to 1000."""
        return Lane.objects.waiting().order_by()[: MOST + 1].count()

    @cached_property
    def held(self) -> list[str]:
        """Customers on hold; up to 1000, and one more if there are more."""
        return list(Customer.objects.held().values_list("pk", flat=True)[: MOST + 1])

    @cached_property
    def held_since(self) -> datetime | None:
        """When the oldest message was created that waits for a customer on hold; None: nothing waits for any of them."""
        lanes = Lane.objects.waiting().filter(customer_id__in=self.held)
        since: datetime | None = lanes.aggregate(since=Min("oldest_at"))["since"]
        return since

    def backlog_trend(self) -> list[float]:
        """Backwards from what waits now."""
        came, went = self.history("buffered"), self.history(*OUT)
        trend = [float(self.backlog)]
        for plus, minus in reversed(list(zip(came, went, strict=True))[2:]):
            trend.append(max(0.0, trend[-1] - plus + minus))
        return trend[::-1]


# -- Stages ------------------------------------------------------------------------------------------------
def stages(numbers: ThrottlerNumbers) -> Iterator[Stage | Sequence[Stage]]:
    yield topic_stage(INPUT, numbers, numbers.progress)
    yield _throttle(numbers)
    yield [_live(numbers), _buffer(numbers)]
    yield _out(numbers)


def _throttle(numbers: ThrottlerNumbers) -> Stage:
    """The processes that decide: what came, what of it had to wait, what nobody can read."""
    return reader_stage(
        "Throttle", numbers, numbers.progress, "read", ["buffered"], ["parked"], ("buffered", "buffered")
    )


def _live(numbers: ThrottlerNumbers) -> Stage:
    trend = numbers.history("live")
    return Stage("Live", humanize.rate(numbers.per_second(trend)), "/s", url=_page("customer"), trend=trend[:-1])


def _buffer(numbers: ThrottlerNumbers) -> Stage:
    waiting = humanize.bounded(numbers.customers, MOST)
    age = f"oldest {humanize.length(numbers.oldest_age.total_seconds())}" if numbers.ends else "waiting"
    return Stage(
        "Buffer",
        f"{numbers.backlog:,}",
        age,
        [f"{waiting} {humanize.word(numbers.customers, 'customer waits', 'customers wait')}"],
        _page("customer"),
        tone="warn" if numbers.expiring else "idle",
        word="Expiring" if numbers.expiring and numbers.expiring.until else "",
        trend=numbers.backlog_trend(),
    )


def _out(numbers: ThrottlerNumbers) -> Stage:
    trend = numbers.history("live", "drained")
    drained = humanize.rate(numbers.per_second(numbers.history("drained")))
    lost = numbers.in_last_hour("expired", "expired_on_arrival")
    held = humanize.bounded(len(numbers.held), MOST)
    return Stage(
        "notifications-out",
        humanize.rate(numbers.per_second(trend)),
        "/s",
        [f"{drained}/s from the buffer", f"{lost:,} expired in 1 h, {held} held"],
        _page("customer"),
        tone="bad" if numbers.progress.away else "idle",
        word="No answer" if numbers.progress.away else "",
        trend=trend[:-1],
    )


# -- Needs -------------------------------------------------------------------------------------------------
def needs(numbers: ThrottlerNumbers) -> Iterator[Need]:
    if numbers.expiring:
        yield _expiring(numbers.expiring)
    if numbers.held:
        yield _held(numbers)


def _expiring(one: Expiring) -> Need:
    """The customer whose messages will be given up first."""
    name, waiting, until = one.end.customer_id, one.situation.traffic.backlog, one.until
    return Need(
        urgency="now" if until and until - one.situation.now < SOON else "soon",
        title=f"Messages of {name} are about to expire" if until else f"Messages of {name} leave late",
        why=_why(one),
        url=_page("customer", name),
        lever="Open customer",
        amount=waiting,
        unit=humanize.word(waiting, "message", "messages"),
        since=one.end.since,
        until=until,
        rank=0,
        kind="expiring",
        key=name,
        runbook="alerts.md#spillwaythrottlerexpiring",
    )


def _held(numbers: ThrottlerNumbers) -> Need:
    """As the aggregator says it of warehouses: somebody did this, and may have forgotten it."""
    number, since = len(numbers.held), numbers.held_since
    return Need(
        "watch",
        f"{humanize.bounded(number, MOST)} {humanize.word(number, 'customer is', 'customers are')} on hold",
        "What is meant for them piles up, and nothing leaves until somebody resumes them."
        if since
        else "Nothing waits for them now; what comes is kept until somebody resumes them.",
        f"{_page('customer')}?show=held",
        "Open list",
        amount=min(number, MOST),
        unit="on hold",
        since=since,
        rank=2,
        kind="on_hold",
        key="customers",
    )


def _why(one: Expiring) -> str:
    """How old the oldest is, when the first is given up, and what helps: the oldest may well leave in time."""
    situation, now = one.situation, one.situation.now
    waits, lives = (humanize.length(seconds) for seconds in ((now - one.end.since).total_seconds(), one.end.ttl))
    facts = f"The oldest has waited {waits}; messages live {lives}."
    if not situation.owned:
        return f"No throttler works on them, so there is no forecast. {facts}"
    if one.first is None:
        more = ", if THROTTLER_OUTPUT_RATE lets them" if settings.THROTTLER_OUTPUT_RATE else ""
        return f"{facts} At today's rate all of them leave in time{more}."
    left = (one.first - now).total_seconds()
    when = f"in {humanize.length(left, coarse=True)}" if left >= 1 else "now"
    if situation.rates.held:
        return f"They are on hold. {facts} The first is given up {when}. To resume, or a longer life, saves them."
    return (
        f"They came faster than the rate lets them leave. {facts} At today's rate the first is given up {when}. "
        "A higher rate or a longer life saves them."
    )


def _page(model: str, key: str = "") -> str:
    """An admin page of this app; the positions of its group where there is none."""
    try:
        if key:
            return reverse(f"admin:throttler_{model}_change", args=[key])
        return reverse(f"admin:throttler_{model}_changelist")
    except NoReverseMatch:
        return reverse("admin:outbox_watermark_changelist")
