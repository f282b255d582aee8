"""Whether people are told, for `doctor`, /metrics and the page."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Min

from config.admin import humanize
from config.flows import Reading
from config.telemetry import metrics
from outbox.alerts.models import Notice, Subscription

LATE = timedelta(minutes=2)


def oldest_unsent(now: datetime) -> datetime | None:
    """Since when a notice waits that should have been sent, whatever it waits for."""
    oldest: datetime | None = (
        Notice.objects.unsettled().filter(due_at__lte=now).aggregate(oldest=Min("due_at"))["oldest"]
    )
    return oldest


def gauges(now: datetime) -> Iterator[Reading]:
    oldest = oldest_unsent(now)
    yield Reading(metrics.NOTICES_OLDEST, (now - oldest).total_seconds() if oldest else 0)
    yield Reading(metrics.NOTICES_FAILING, Subscription.objects.failing().count())


def notices_diagnosis(now: datetime) -> Iterator[tuple[str, bool, str]]:
    """One line: who is not told of what, and why."""
    number = Subscription.objects.of_active_people().count()
    trouble = [
        f"{row.name} has not been reached since {humanize.clock_in_zone(row.failing_since or now, now)}: {row.error}"
        for row in Subscription.objects.failing().order_by("name")[:5]
    ]
    oldest = oldest_unsent(now)
    if oldest and now - oldest > LATE and not trouble:
        trouble.append(f"notices wait since {humanize.clock_in_zone(oldest, now)}: is notify_people running?")
    links = "" if settings.SITE_URL else "; without links, SITE_URL is empty"
    told = (
        humanize.plural(number, "subscription", "subscriptions") + links
        if number
        else "nobody has subscribed to anything"
    )
    yield "notifications", not trouble, "; ".join(trouble) or told
