"""Who has moved a letter on: a person by a lever of their own, or a batch. For whoever came second."""

from __future__ import annotations

from typing import Any

from outbox.replay.batches.deeds import who_took
from outbox.trail.models import OperatorAction

NO_DEEDS = ("reveal", "mask_again", "refused", "export")
LOOKED_AT = 10  # of its newest actions


def who_was_faster(letter: Any) -> str:
    """`Anna was faster.`; empty where nobody did it, but its own replay."""
    if letter.status == "open":
        return ""
    actions = OperatorAction.objects.about("outbox.deadletter", letter.pk, LOOKED_AT)
    name = actions.exclude(verb__in=NO_DEEDS).values_list("actor_name", flat=True).first()
    found = name or who_took([letter.pk]).get(letter.pk, "")
    return f"{found} was faster." if found else ""
