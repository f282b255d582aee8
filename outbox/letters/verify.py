"""Checks the counts of failure groups."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Count

from config.flows import Check
from outbox.bookkeeping.verify import OFFENDERS
from outbox.letters.models import DeadLetter, FailureGroup


def letters_counted(sources: Sequence[str]) -> Check:
    """The stored count of each group, which many workers change, is the number of its open letters."""
    letters = DeadLetter.objects.open().filter(source__in=sources).order_by()
    opened = dict(letters.values_list("group_id").annotate(number=Count("id")))
    offenders = [
        {
            "group": group.pk,
            "title": group.title,
            "counted": group.open_count,
            "letters": opened.get(group.pk, 0),
        }
        for group in FailureGroup.objects.filter(source__in=sources)
        if group.open_count != opened.get(group.pk, 0)
    ]
    return Check(f"failure groups of {', '.join(sources)} count their open letters", rows=offenders[:OFFENDERS])
