"""The ledger as home draws it: three stages with live numbers, and what about them needs a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from django.conf import settings
from django.urls import NoReverseMatch, reverse

from buffer.ledger.track import GROUP, NAME
from config import words
from config.flows import Need, Picture, Reading, Stage
from config.kafka import topic_name
from outbox import counters
from outbox.picture import BEHIND, Reach, letter_needs, letters_last_hour, open_letters, position_needs
from outbox.picture import gauges as shared_gauges

TREND = 24  # minutes


def picture(now: datetime) -> Picture:
    """Home's row of the ledger."""
    numbers = Numbers(now)
    return Picture(
        name="Ledger",
        purpose="Every stock effect once",
        stages=list(_stages(numbers)),
        needs=list(_needs(numbers)),
        letters_open=sum(open_letters([NAME]).values()),
        letters_last_hour=letters_last_hour([NAME], now),
        url=page("inventorystock"),
        letters_url=reverse("admin:outbox_failuregroup_changelist"),
    )


def gauges(now: datetime) -> Iterator[Reading]:
    """What /metrics says of the ledger."""
    yield from shared_gauges([NAME], Numbers(now).reach)


def page(model: str) -> str:
    """The list of a model in the admin, if it is registered there."""
    try:
        return reverse(f"admin:buffer_{model}_changelist")
    except NoReverseMatch:
        return ""


@dataclass
class Numbers:
    """Counters and indexed look-ups, each asked once."""

    now: datetime

    @cached_property
    def reach(self) -> Reach:
        return Reach.of(topic_name(GROUP), [topic_name(name) for name in settings.MOVEMENTS], self.now)

    @cached_property
    def totals(self) -> dict[str, int]:
        return counters.totals(NAME)

    def history(self, *kinds: str, minutes: int = TREND + 1) -> list[int]:
        """Counts per minute; the last one is the minute under way, which no line should draw as a fall."""
        rows = [counters.history(NAME, kind, self.now, minutes) for kind in kinds]
        return [sum(column) for column in zip(*rows, strict=True)]

    def per_second(self, trend: Sequence[int]) -> float:
        """Over the minute under way and the one before, so that a full minute's start does not read 0."""
        return sum(trend[-2:]) / (60 + self.now.timestamp() % 60)


# -- Stages ------------------------------------------------------------------------------------------------
def _stages(numbers: Numbers) -> Iterator[Stage]:
    yield _topics(numbers)
    yield _track(numbers)
    yield _ledger(numbers)


def _topics(numbers: Numbers) -> Stage:
    trend, reach = numbers.history("read"), numbers.reach
    late = reach.lag > 0 and (reach.behind or timedelta(0)) > BEHIND
    behind = (
        f"{words.length(reach.behind.total_seconds())} behind"
        if reach.behind is not None
        else "not measured yet"
    )
    return Stage(
        f"{len(settings.MOVEMENTS)} stock topics",
        words.rate(numbers.per_second(trend)),
        "/s",
        [f"lag {words.plural(reach.lag, 'record', 'records')}", behind],
        reverse("admin:outbox_watermark_changelist"),
        tone="warn" if late else "idle",
        word="Behind" if late else "",
        trend=trend[:-1],
    )


def _track(numbers: Numbers) -> Stage:
    trend, reach = numbers.history("applied"), numbers.reach
    again = sum(numbers.history("duplicate", minutes=60))
    parked = sum(numbers.history("parked", minutes=60))
    first = f"{words.plural(again, 'repeat', 'repeats')} in 1 h"
    if reach.seen is None:
        first = "not seen yet"
    elif reach.unseen:
        first = f"not seen for {words.length((numbers.now - reach.seen).total_seconds(), coarse=True)}"
    return Stage(
        "Track",
        words.rate(numbers.per_second(trend)),
        "/s",
        [first, f"{parked:,} parked in 1 h"],
        reverse("admin:outbox_watermark_changelist"),
        tone="bad" if reach.stopped else "warn" if reach.unseen else "idle",
        word="Stopped" if reach.stopped else "Not seen" if reach.unseen else "",
        trend=trend[:-1],
    )


def _ledger(numbers: Numbers) -> Stage:
    trend = numbers.history("movements", "restored")
    total = numbers.totals.get("movements", 0) + numbers.totals.get("restored", 0)
    return Stage(
        "Ledger",
        f"{total:,}",
        "movements",
        [
            f"unknown stock: {settings.LEDGER_UNKNOWN_STOCK}",
            f"negative stock: {settings.LEDGER_NEGATIVE_STOCK}",
        ],
        page("inventorytracking"),
        trend=trend[:-1],
    )


# -- Needs -------------------------------------------------------------------------------------------------
def _needs(numbers: Numbers) -> Iterator[Need]:
    yield from position_needs(numbers.reach, "Stock tracking")
    yield from letter_needs([NAME])
