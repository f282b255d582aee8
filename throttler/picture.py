"""The throttler in numbers, for home and /metrics: totals, whose messages end soonest, who owns what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from django.conf import settings
from django.db.models import OuterRef, QuerySet, Subquery
from django.urls import NoReverseMatch, reverse

from config.admin import humanize
from config.flows import Need, Picture, Reading, Stage
from config.kafka import topic_name
from config.telemetry import metrics
from outbox.bookkeeping import counters, progress
from outbox.bookkeeping.progress import Progress, Trends, position_needs, reader_stage, topic_stage
from outbox.letters import overview
from outbox.letters.overview import letter_counts, letter_needs, letters_last_hour
from throttler.customers.models import Customer
from throttler.engine.partition import OUT
from throttler.engine.row_writer import GROUP
from throttler.engine.transaction import INPUT
from throttler.lanes.mirror import FLOW
from throttler.lanes.models import Lane, LaneOwner

# -- Which customer's messages are nearest to the end of their life ------------------------------------------
# As the mirror and the customers' lifetimes say.
MOST = 1000  # lanes that are looked at, of those that wait longest


@dataclass(frozen=True)
class NearestEnd:
    """A lane whose oldest message began at `since`; it lives `ttl` seconds unless it names a shorter time itself."""

    customer_id: str
    backlog: int
    since: datetime
    ttl: int

    @property
    def until(self) -> datetime:
        return self.since + timedelta(seconds=self.ttl)

    def used(self, now: datetime) -> float:
        """How much of its life is over, of 1."""
        return max(0.0, (now - self.since).total_seconds()) / self.ttl


def nearest_end(now: datetime) -> NearestEnd | None:
    """Of the lanes that wait longest, and of those that wait longest among customers with a shorter life."""
    shorter = Customer.objects.filter(ttl_seconds__lt=settings.THROTTLER_TTL_SECONDS).values("pk")
    waiting = Lane.objects.filter(oldest_at__isnull=False)
    ends = [*_ends(waiting), *_ends(waiting.filter(customer_id__in=shorter))]
    return max(ends, key=lambda end: end.used(now), default=None)


def _ends(lanes: QuerySet[Lane]) -> Iterator[NearestEnd]:
    own = Customer.objects.filter(pk=OuterRef("customer_id")).values("ttl_seconds")
    rows: Any = lanes.annotate(own=Subquery(own[:1])).order_by("oldest_at")
    for customer_id, backlog, since, ttl in rows.values_list("customer_id", "backlog", "oldest_at", "own")[:MOST]:
        yield NearestEnd(customer_id, backlog, since, settings.THROTTLER_TTL_SECONDS if ttl is None else ttl)


# -- The throttler in numbers, for home and /metrics: totals, the mirror's indexes, and who owns what --------
NEAR = 0.8  # of its life: from then on somebody should look
SOON = timedelta(hours=2)  # messages that are lost within this are for now


def picture(now: datetime) -> Picture:
    """Home's row of the throttler."""
    numbers = Numbers(now)
    return Picture(
        name="Throttler",
        purpose="Every customer at their rate",
        stages=[
            topic_stage(INPUT, numbers, numbers.progress),
            _throttle(numbers),
            [_live(numbers), _buffer(numbers)],
            _out(numbers),
        ],
        needs=list(_needs(numbers)),
        **letter_counts([FLOW]),
        letters_last_hour=letters_last_hour([FLOW], now, ("parked", "lost")),
        url=_page("customer"),
        letters_url=reverse("admin:outbox_failuregroup_changelist"),
    )


def gauges(now: datetime) -> Iterator[Reading]:
    """What /metrics says of the throttler."""
    numbers = Numbers(now)
    yield Reading(metrics.THROTTLER_BACKLOG, numbers.backlog)
    yield Reading(metrics.THROTTLER_OLDEST, numbers.oldest_age.total_seconds())
    yield Reading(metrics.THROTTLER_LIFE, numbers.used)
    for owner in LaneOwner.objects.filter(starts__gt=1).order_by("name"):
        yield Reading(metrics.THROTTLER_OWNER_STARTS, owner.starts, {"owner": owner.name})
    yield from overview.gauges([FLOW])
    yield from progress.gauges(numbers.progress)


@dataclass
class Numbers(Trends):
    """The numbers of one page or scrape; each is read once."""

    names: Sequence[str] = (FLOW,)

    @cached_property
    def progress(self) -> Progress:
        return Progress.of(topic_name(GROUP), [topic_name(INPUT)], self.now)

    @cached_property
    def totals(self) -> dict[str, int]:
        return counters.totals(FLOW)

    @property
    def backlog(self) -> int:
        """What was buffered and has not left: the sum over all lanes, without adding them up."""
        return max(0, self.totals.get("buffered", 0) - sum(self.totals.get(name, 0) for name in OUT))

    @cached_property
    def oldest(self) -> Lane | None:
        """The lane whose oldest message was created first."""
        return Lane.objects.filter(oldest_at__isnull=False).order_by("oldest_at").first()

    @property
    def oldest_age(self) -> timedelta:
        since = self.oldest.oldest_at if self.oldest else None
        return max(timedelta(0), self.now - since) if since else timedelta(0)

    @cached_property
    def end(self) -> NearestEnd | None:
        """The lane whose oldest message has used most of its life."""
        return nearest_end(self.now)

    @property
    def used(self) -> float:
        """How much of its life that message has used, of 1."""
        return self.end.used(self.now) if self.end else 0.0

    @property
    def near(self) -> bool:
        """Whether somebody should look before messages expire."""
        return self.used > NEAR

    @cached_property
    def customers(self) -> int:
        """Lanes that wait; counted up to 1000."""
        return Lane.objects.filter(backlog__gt=0).order_by()[: MOST + 1].count()

    @cached_property
    def held(self) -> int:
        return Customer.objects.held()[: MOST + 1].count()

    def backlog_trend(self) -> list[float]:
        """Backwards from what waits now."""
        came, went = self.history("buffered"), self.history(*OUT)
        trend = [float(self.backlog)]
        for plus, minus in reversed(list(zip(came, went, strict=True))[2:]):
            trend.append(max(0.0, trend[-1] - plus + minus))
        return trend[::-1]


# -- Stages ------------------------------------------------------------------------------------------------
def _throttle(numbers: Numbers) -> Stage:
    """The processes that decide: what came, what of it had to wait, what nobody can read."""
    return reader_stage(
        "Throttle", numbers, numbers.progress, "read", ["buffered"], ["parked"], ("buffered", "buffered")
    )


def _live(numbers: Numbers) -> Stage:
    trend = numbers.history("live")
    return Stage("Live", humanize.rate(numbers.per_second(trend)), "/s", url=_page("customer"), trend=trend[:-1])


def _buffer(numbers: Numbers) -> Stage:
    waiting = humanize.bounded(numbers.customers, MOST)
    age = f"oldest {humanize.length(numbers.oldest_age.total_seconds())}" if numbers.oldest else "waiting"
    return Stage(
        "Buffer",
        f"{numbers.backlog:,}",
        age,
        [f"{waiting} {humanize.word(numbers.customers, 'customer waits', 'customers wait')}"],
        _page("customer"),
        tone="warn" if numbers.near else "idle",
        word="Expiring" if numbers.near else "",
        trend=numbers.backlog_trend(),
    )


def _out(numbers: Numbers) -> Stage:
    trend = numbers.history("live", "drained")
    drained = humanize.rate(numbers.per_second(numbers.history("drained")))
    lost = sum(numbers.history("expired", "expired_on_arrival", minutes=60))
    held = humanize.bounded(numbers.held, MOST)
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
def _needs(numbers: Numbers) -> Iterator[Need]:
    yield from position_needs(numbers.progress, "The throttler")
    if numbers.end and numbers.near:
        yield _expiring(numbers.end, numbers.now)
    yield from letter_needs([FLOW])


def _expiring(end: NearestEnd, now: datetime) -> Need:
    """The customer whose messages will be given up first."""
    return Need(
        urgency="now" if end.until - now < SOON else "soon",
        title=f"Messages of {end.customer_id} are about to expire",
        why=_why(end, now),
        url=_page("customer", end.customer_id),
        lever="Open customer",
        amount=end.backlog,
        unit=humanize.word(end.backlog, "message", "messages"),
        since=end.since,
        until=end.until,
        rank=0,
    )


def _why(end: NearestEnd, now: datetime) -> str:
    waits, lives = (humanize.length(seconds) for seconds in ((now - end.since).total_seconds(), end.ttl))
    facts = f"The oldest has waited {waits}; messages live {lives}."
    if Customer.objects.held().filter(pk=end.customer_id).exists():
        return f"They are on hold. {facts} To resume, or a longer life, saves them."
    return f"They came faster than the rate lets them leave. {facts} A higher rate or a longer life saves them."


def _page(model: str, key: str = "") -> str:
    """An admin page of this app; the positions of its group where there is none."""
    try:
        if key:
            return reverse(f"admin:throttler_{model}_change", args=[key])
        return reverse(f"admin:throttler_{model}_changelist")
    except NoReverseMatch:
        return reverse("admin:outbox_watermark_changelist")
