"""The ledger as home draws it: three stages with live numbers, and what about them needs a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from django.conf import settings
from django.urls import reverse

from buffer.ledger.handler import GROUP
from buffer.ledger.statements import NAME
from config.flows import Need, Picture, Reading, Stage
from config.kafka import topic_name
from outbox.bookkeeping import counters, progress
from outbox.bookkeeping.progress import Progress, position_needs
from outbox.bookkeeping.stages import Trends, reader_stage, topic_stage
from outbox.letters import overview
from outbox.letters.overview import letter_counts, letter_needs, letters_last_hour


def picture(now: datetime) -> Picture:
    """Home's row of the ledger."""
    numbers = Numbers(now)
    return Picture(
        name="Ledger",
        purpose="Every stock effect once",
        stages=list(_stages(numbers)),
        needs=list(_needs(numbers)),
        **letter_counts([NAME]),
        letters_last_hour=letters_last_hour([NAME], now),
        url=reverse("admin:buffer_inventorystock_changelist"),
        letters_url=reverse("admin:outbox_failuregroup_changelist"),
    )


def gauges(now: datetime) -> Iterator[Reading]:
    """What /metrics says of the ledger."""
    yield from overview.gauges([NAME])
    yield from progress.gauges(Numbers(now).progress)


@dataclass
class Numbers(Trends):
    """Counters and indexed look-ups, each asked once."""

    names: Sequence[str] = (NAME,)

    @cached_property
    def progress(self) -> Progress:
        return Progress.of(topic_name(GROUP), [topic_name(name) for name in settings.MOVEMENTS], self.now)

    @cached_property
    def totals(self) -> dict[str, int]:
        return counters.totals(NAME)


# -- Stages ------------------------------------------------------------------------------------------------
def _stages(numbers: Numbers) -> Iterator[Stage]:
    yield topic_stage(f"{len(settings.MOVEMENTS)} stock topics", numbers, numbers.progress)
    yield reader_stage("Track", numbers, numbers.progress, "applied", ["duplicate"], ["parked"])
    yield _ledger(numbers)


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
        reverse("admin:buffer_inventorytracking_changelist"),
        trend=trend[:-1],
    )


# -- Needs -------------------------------------------------------------------------------------------------
def _needs(numbers: Numbers) -> Iterator[Need]:
    yield from position_needs(numbers.progress, "Stock tracking")
    yield from letter_needs([NAME])
