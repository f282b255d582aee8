"""The lever "Edit and requeue" on the page of a letter: open, or locked with the reason."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from config.admin.confirmation import LeverState
from config.admin.levers import Lever, LeverResult
from config.admin.roles import role_with
from outbox.edits.copies import why_not
from outbox.edits.deed import LEAST_REASON
from outbox.letters.models import DeadLetter
from outbox.trail import reveal

EDIT = Lever(
    name="edit", verb="Edit and requeue", past="Requeued", icon="edit", right="edit_deadletter",
    nouns=("letter", "letters"), promise="", detail="", keep="Back without changes",
    act=lambda keys, operator, reason: LeverResult(0, ["A copy is edited on the letter's page."]),
    ready=lambda rows: rows.open(), why_not=lambda row: "", least=LEAST_REASON,
)  # fmt: skip
RIGHTS = {"outbox.edit_deadletter": "edit and requeue dead letters", reveal.RIGHT: "see payloads"}


def lacking(user: Any) -> tuple[str, str]:
    """The first right that this person lacks to edit, in words, and the least role that has it; empty with all."""
    for right, words in RIGHTS.items():
        if not user.has_perm(right):
            return words, role_with(right)
    return "", ""


def page_of(row: DeadLetter) -> str:
    return reverse("admin:outbox_deadletter_edit", args=[row.pk])


def state_of(request: HttpRequest, row: DeadLetter, closed: str) -> LeverState:
    """The lever as the letter's page draws it; `closed` says why none of its levers can be pulled now."""
    right, role = lacking(request.user)
    return LeverState(EDIT, page_of(row), "" if right else closed or why_not(row), right, role=role)
