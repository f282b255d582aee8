"""Numbers of open letters, and the needs they cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from django.db.models import Sum
from django.urls import reverse

from config.admin import humanize
from config.flows import Need, Reading
from config.telemetry import metrics
from outbox.bookkeeping import counters
from outbox.letters.models import FailureGroup

MOST_GROUPS = 3


def open_letters(sources: Sequence[str]) -> dict[str, int]:
    """`{source: open letters}`, from the counts that groups keep."""
    found = FailureGroup.objects.filter(source__in=sources).values_list("source").annotate(total=Sum("open_count"))
    return {**dict.fromkeys(sources, 0), **{source: int(total) for source, total in found}}


def letters_ever(sources: Sequence[str]) -> int:
    """How many letters these sources have had, closed and dropped ones among them."""
    found = FailureGroup.objects.filter(source__in=sources).aggregate(total=Sum("total_count"))
    return int(found["total"] or 0)


def letters_last_hour(sources: Sequence[str], now: datetime, kinds: Sequence[str] = ("parked", "late")) -> int:
    """Letters of the last hour, from the counters that a flow keeps of what it buries."""
    return sum(sum(counters.history(source, name, now, 60)) for source in sources for name in kinds)


def letter_needs(sources: Sequence[str], urgent: Sequence[str] = ()) -> Iterator[Need]:
    """One line per failure group, the rest in one more; a step in `urgent` is one for which people wait."""
    groups = list(FailureGroup.objects.needing_work().filter(source__in=sources).order_by("-last_seen")[:100])
    groups.sort(key=lambda group: group.step not in urgent)
    for group in groups[:MOST_GROUPS]:
        yield _need_of_group(group, group.step in urgent)
    rest = groups[MOST_GROUPS:]
    if rest:
        largest = max(rest, key=lambda group: group.open_count)
        yield Need(
            urgency="soon",
            title=humanize.plural(len(rest), "more failure group", "more failure groups") + " with open letters",
            why=f"The largest is “{largest}”, {humanize.plural(largest.open_count, 'letter', 'letters')}.",
            url=reverse("admin:outbox_failuregroup_changelist"),
            lever="Open list",
            amount=sum(group.open_count for group in rest),
            unit="dead letters",
            since=min(group.first_seen for group in rest),
            rank=3,
        )


def _need_of_group(group: FailureGroup, urgent: bool) -> Need:
    return Need(
        urgency="now" if urgent else "soon",
        title=str(group),
        why=f"{group.source}, failed at the step “{group.step}”. "
        + (
            "They wait until they are requeued or discarded; later ones go on."
            if urgent
            else "Requeue, resolve or discard them."
        ),
        url=reverse("admin:outbox_failuregroup_change", args=[group.pk]),
        lever="Open group",
        amount=group.open_count,
        unit=humanize.word(group.open_count, "dead letter", "dead letters"),
        since=group.first_seen,
        rank=1 if urgent else 2,
    )


def gauges(sources: Sequence[str]) -> Iterator[Reading]:
    """The same numbers for /metrics."""
    for source, number in open_letters(sources).items():
        yield Reading(metrics.LETTERS_OPEN, number, {"source": source})
