"""The letters of a group that came just before and just after one: whoever reads through a group goes from page to page."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.urls import reverse

from outbox.letters.models import DeadLetter


def neighbours_of(row: DeadLetter) -> dict[str, str]:
    """The pages of the next newer and the next older letter of its group, in any state; empty where there is none."""
    if row.group_id is None:
        return {"newer": "", "older": ""}
    group = DeadLetter.objects.of_group(row.group_id)
    found = {"newer": group.filter(pk__gt=row.pk).order_by("pk"), "older": group.filter(pk__lt=row.pk).newest_first()}
    # Keys alone come from the index of the group; asked for a column more, MySQL walks all letters between the two.
    return {side: _page_of(rows.values_list("pk", flat=True)[:1]) for side, rows in found.items()}


def _page_of(keys: Iterable[UUID]) -> str:
    return next((reverse("admin:outbox_deadletter_change", args=[key]) for key in keys), "")
