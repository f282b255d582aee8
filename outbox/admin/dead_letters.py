"""Admin page of dead letters, and the levers on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.contrib import admin
from django.db import models
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.text import capfirst

from config.admin import humanize
from config.admin.html import chip
from config.admin.levers import Lever, LeverResult, Operator
from config.admin.payload import pretty
from config.admin.positions import POSITION
from config.admin.read_only import ReadOnlyAdmin, Segments, age_column
from config.admin.states import in_words
from config.flows import Refusal
from config.telemetry.redaction import without_addresses, without_values
from config.uuid7 import is_uuid
from outbox.admin.failure_groups import TABS
from outbox.bookkeeping.audit import may_see_payloads
from outbox.bookkeeping.progress import BEHIND
from outbox.letters import levers as dead_letters
from outbox.letters.models import DeadLetter, FailureGroup, cause_in_words


def _each(close: Callable[..., int]) -> Callable[[list[Any], Operator, str], LeverResult]:
    """Letter by letter: one that refuses must not hide what became of the others."""

    def act(keys: list[Any], operator: Operator, reason: str) -> LeverResult:
        changed, refused = 0, []
        for key in keys:
            try:
                changed += close([key], operator, reason)
            except Refusal as refusal:
                refused.append(f"{capfirst(str(refusal))}.")
        return LeverResult(changed, refused)

    return act


def _requeue(keys: list[Any], operator: Operator, reason: str) -> LeverResult:
    result = dead_letters.requeue(keys, operator, reason)
    return LeverResult(result.requeued, [f"{letter}: {why}." for letter, why in result.refused])


def _why_closed(letter: DeadLetter) -> str:
    age = humanize.ago(letter.updated_at, timezone.now())
    return f"Already {letter.status} {age}: {letter.note}." if letter.note else f"Already {letter.status} {age}."


LETTERS: dict[str, Any] = {
    "nouns": ("letter", "letters"),
    "ready": lambda rows: rows.open(),
    "why_not": _why_closed,
}
REQUEUE = Lever(
    name="requeue",
    verb="Requeue",
    past="Requeued",
    icon="redo",
    right="requeue_deadletter",
    keep="Not now",
    promise="The flow processes each letter again.",
    detail="It is processed at its original position, so it cannot overwrite a later version. "
    "If it fails again, a new letter says why.",
    act=_requeue,
    **LETTERS,
)
RESOLVE = Lever(
    name="resolve",
    verb="Resolve",
    past="Resolved",
    icon="tick",
    right="resolve_deadletter",
    keep="Leave open",
    promise="Nothing is sent.",
    detail="Resolved letters were dealt with elsewhere. They leave the open count and stay in search.",
    act=_each(dead_letters.resolve),
    **LETTERS,
)
DISCARD = Lever(
    name="discard", verb="Discard", past="Discarded", icon="ban",
    right="discard_deadletter", keep="Leave open",
    promise="What they carry will never take effect.",
    detail="Discarded letters are marked, not deleted. They leave the open count and stay in search. "
    "A refused batch is discarded with its orders.",
    act=_each(dead_letters.discard), harm=True, least=dead_letters.LEASTS["discard"], **LETTERS,
)  # fmt: skip
MOST_FOUND = 20


class StateOfLetter(Segments):
    title = "state"
    parameter_name = "state"
    field = "status"
    choices_in_words = [*in_words("open requeued resolved discarded"), ("all", "All")]


@admin.register(DeadLetter)
class DeadLetterAdmin(ReadOnlyAdmin):
    place = 20
    tabs = TABS
    levers = (REQUEUE, RESOLVE, DISCARD)
    list_display = ["letter", "state", "cause", "source", "arrived"]
    list_filter = [StateOfLetter]
    links = ["group__id__exact"]
    search_fields = ["pk"]
    search_help_text = (
        "Paste an order id, batch id, letter id or topic/partition/offset. Exact match, in the chosen state."
    )
    empty = ("No letters here", "A letter appears when a message failed for good.")
    arrived = age_column("created_at", "Arrived")

    def get_queryset(self, request: HttpRequest) -> models.QuerySet:
        # A list never needs what can be large; a page reads it when it is shown.
        return super().get_queryset(request).defer("payload", "traceback", "headers")

    def narrowed_to(self, lookup: str, value: Any) -> str:
        group = FailureGroup.objects.filter(pk=value).first() if lookup == "group__id__exact" else None
        return f"“{group}”" if group else str(value)

    @admin.display(description="Letter")
    def letter(self, row: DeadLetter) -> str:
        return row.business_key or row.position

    @admin.display(description="State")
    def state(self, row: DeadLetter) -> str:
        return chip(row.status)

    @admin.display(description="Cause")
    def cause(self, row: DeadLetter) -> str:
        line = '{}<span class="sw-second"><code>{}</code>, step “{}”</span>'
        return format_html(line, humanize.quoted(row.error[:200]), row.error_class or row.reason, row.step)

    def find(self, key: str) -> Iterable[DeadLetter]:
        rows = DeadLetter.objects.newest_first().defer("payload", "traceback", "headers")
        place = POSITION.fullmatch(key)
        if place:
            return list(rows.filter(**place.groupdict())[:MOST_FOUND])
        found = list(rows.filter(business_key=key)[:MOST_FOUND])
        return found or (list(rows.filter(pk=key)) if is_uuid(key) else [])

    def detail(self, request: HttpRequest, row: DeadLetter) -> dict[str, Any]:
        group = FailureGroup.objects.filter(pk=row.group_id).first()
        may_see = may_see_payloads(request)
        return {
            "title": f"{cause_in_words(row.reason)}: {row.business_key or row.position}",
            "group": group,
            # Letters of older versions hold what the database said about the row.
            "error": row.error if may_see else without_addresses(without_values(row.error)),
            "payload": pretty(row.payload) if may_see else "",
            "size": len(row.payload) if row.payload is not None else None,
            "may_see": may_see,
            "key": bytes(row.key).decode("utf-8", "backslashreplace") if row.key else humanize.UNKNOWN,
            "forecast": dead_letters.forecast(row) if row.status == DeadLetter.Status.OPEN else None,
            # The letter on the screen does not count: another one must have come after it.
            "again": group and row.created_at < group.last_seen > timezone.now() - BEHIND * 60,
        }
