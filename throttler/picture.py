"""The throttler in numbers, for home and /metrics: totals, the mirror's indexes, and who owns what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from django.conf import settings
from django.urls import NoReverseMatch, reverse

from config.admin import humanize
from config.flows import Need, Picture, Reading, Stage
from config.kafka import topic_name
from config.telemetry import metrics
from outbox.bookkeeping import counters, progress
from outbox.bookkeeping.progress import Progress, position_needs
from outbox.bookkeeping.stages import Trends, reader_stage, topic_stage
from outbox.letters import overview
from outbox.letters.overview import letter_counts, letter_needs, letters_last_hour
from throttler.customers.models import Customer
from throttler.lanes.mirror import FLOW
from throttler.lanes.models import Lane, LaneOwner
from throttler.live.partition import OUT
from throttler.live.sending import INPUT
from throttler.live.storing import GROUP

REPORTED = timedelta(seconds=10)  # an owner that is silent for longer says nothing about now
NEAR = 0.8  # of its life: from then on somebody should look
MOST = 1000


def picture(now: datetime) -> Picture:
    """Home's row of the throttler."""
    numbers = Numbers(now)
    return Picture(
        name="Throttler",
        purpose="Every customer at their rate",
        stages=[topic_stage(INPUT, numbers, numbers.progress), _owners(numbers), _buffer(numbers), _out(numbers)],
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
    yield Reading(metrics.THROTTLER_TTL, settings.THROTTLER_TTL_SECONDS)
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
    def customers(self) -> int:
        """Lanes that wait; counted up to 1000."""
        return Lane.objects.filter(backlog__gt=0).order_by()[: MOST + 1].count()

    @cached_property
    def held(self) -> int:
        return Customer.objects.held()[: MOST + 1].count()

    @cached_property
    def owners(self) -> list[LaneOwner]:
        return list(LaneOwner.objects.filter(updated_at__gt=self.now - REPORTED))

    def backlog_trend(self) -> list[float]:
        """Backwards from what waits now."""
        came, went = self.history("buffered"), self.history(*OUT)
        trend = [float(self.backlog)]
        for plus, minus in reversed(list(zip(came, went, strict=True))[2:]):
            trend.append(max(0.0, trend[-1] - plus + minus))
        return trend[::-1]


# -- Stages ------------------------------------------------------------------------------------------------
def _owners(numbers: Numbers) -> Stage:
    """The processes that decide: what went at once, and what had to wait."""
    return reader_stage("Throttle", numbers, numbers.progress, "live", ["buffered"], ["parked"])


def _buffer(numbers: Numbers) -> Stage:
    waiting = humanize.bounded(numbers.customers, MOST)
    age = f"oldest {humanize.length(numbers.oldest_age.total_seconds())}" if numbers.oldest else "nothing is old"
    near = _near(numbers)
    return Stage(
        "Buffer",
        f"{numbers.backlog:,}",
        "waiting",
        [f"{waiting} {humanize.word(numbers.customers, 'customer', 'customers')}", age],
        _page("customer"),
        tone="warn" if near else "idle",
        word="Expiring" if near else "",
        trend=numbers.backlog_trend(),
    )


def _out(numbers: Numbers) -> Stage:
    trend = numbers.history("live", "drained")
    lost = sum(numbers.history("expired", "expired_on_arrival", minutes=60))
    held = humanize.bounded(numbers.held, MOST)
    return Stage(
        "notifications-out",
        humanize.rate(numbers.per_second(trend)),
        "/s",
        [f"{lost:,} expired in 1 h", f"{held} {humanize.word(numbers.held, 'customer', 'customers')} held"],
        _page("customer"),
        trend=trend[:-1],
    )


# -- Needs -------------------------------------------------------------------------------------------------
def _needs(numbers: Numbers) -> Iterator[Need]:
    yield from position_needs(numbers.progress, "The throttler")
    if _near(numbers):
        yield _expiring(numbers)
    yield from letter_needs([FLOW])


def _near(numbers: Numbers) -> bool:
    return numbers.oldest_age.total_seconds() > NEAR * settings.THROTTLER_TTL_SECONDS


def _expiring(numbers: Numbers) -> Need:
    """The customer whose messages will be given up first."""
    lane = numbers.oldest
    assert lane is not None  # noqa: S101 (something is near its end)
    assert lane.oldest_at is not None  # noqa: S101 (it was found by it)
    return Need(
        urgency="soon",
        title=f"Messages of {lane.customer_id} are about to expire",
        why="They came faster than the rate lets them leave. A higher rate or a longer life saves them.",
        url=_page("customer", lane.customer_id),
        lever="Open customer",
        amount=lane.backlog,
        unit=humanize.word(lane.backlog, "message", "messages"),
        since=lane.oldest_at,
        until=lane.oldest_at + timedelta(seconds=settings.THROTTLER_TTL_SECONDS),
        rank=0,
    )


def _page(model: str, key: str = "") -> str:
    """An admin page of this app; the positions of its group where there is none."""
    try:
        if key:
            return reverse(f"admin:throttler_{model}_change", args=[key])
        return reverse(f"admin:throttler_{model}_changelist")
    except NoReverseMatch:
        return reverse("admin:outbox_watermark_changelist")
