"""The circuit breaker of a channel: five outages in a row open it, any answer to a probe closes it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, QuerySet

from config.database.compiled import compiled
from config.telemetry.logs import log
from config.telemetry.masks import masked_error
from outbox.channels.handlers import Outcome
from outbox.channels.models import ChannelState

THRESHOLD = 5
FIRST_PROBE, LONGEST_PROBE = 5.0, 60.0  # seconds

OPEN, CLOSED = ChannelState.Breaker.OPEN, ChannelState.Breaker.CLOSED


def next_probe(opened_at: datetime, now: datetime) -> datetime:
    """The wait doubles: 5 s, 10 s, 20 s, … 60 s."""
    age = (now - opened_at).total_seconds()
    return now + timedelta(seconds=min(LONGEST_PROBE, max(FIRST_PROBE, age)))


def outages_at_end(outcomes: Sequence[Outcome]) -> int:
    """How many calls in a row, counted from the last one, found nobody."""
    run = 0
    for outcome in outcomes:
        run = run + 1 if outcome.kind == "unreachable" else 0
    return run


def note(channel: str, outcomes: Sequence[Outcome], now: datetime) -> bool:
    """Count outages and open or close the breaker, by one outcome a call; True when it is open now.

    Whatever the other side answers closes the breaker: a refused message is an answer, too.
    """
    rows = ChannelState.objects.named(channel)
    run = outages_at_end(outcomes)
    # Asked first: there is nearly never anything to close, and the ORM takes longer to build an UPDATE.
    if run < len(outcomes) and _ailing(channel=channel) and rows.ailing().close_breaker(now):
        log.info("channel_answers", channel=channel)
    if not run:
        return False
    rows.update(failures=F("failures") + run, last_error=outcomes[-1].error, updated_at=now)
    opened = rows.filter(breaker=CLOSED, failures__gte=THRESHOLD).update(
        breaker=OPEN, opened_at=now, probe_at=now + timedelta(seconds=FIRST_PROBE)
    )
    if opened:
        log.error("breaker_opened", channel=channel, error=masked_error(outcomes[-1].error))
    return rows.broken().exists()


@compiled
def _ailing(channel: str) -> QuerySet[Any, Any]:
    return ChannelState.objects.named(channel).ailing().values_list("name")
