"""Admin page of the operator's trail."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone

from config.admin import humanize
from config.admin.keyset import Keyset
from config.admin.read_only import ReadOnlyAdmin, age_column, number_column
from config.telemetry.redaction import without_addresses
from outbox.bookkeeping.audit import may_see_payloads
from outbox.bookkeeping.models import OperatorAction

SOMEBODYS = ("note",)  # words of a provider, about somebody


@admin.register(OperatorAction)
class OperatorActionAdmin(ReadOnlyAdmin):
    place = 70
    keyset = Keyset("created_at", ties_opposed=True)
    list_display = ["did", "when", "actor_name", "because", "result", "count_rows"]
    empty = (
        "No levers were pulled yet",
        "Whatever somebody changes here or by a command is written down with its reason.",
    )
    when = age_column("created_at", "When")
    count_rows = number_column("rows", "Rows")

    @admin.display(description="Did")
    def did(self, row: OperatorAction) -> str:
        return f"{row.verb.capitalize()}: {row.subject}"

    @admin.display(description="Reason")
    def because(self, row: OperatorAction) -> str:
        return without_addresses(row.reason)

    def detail(self, request: HttpRequest, row: OperatorAction) -> dict[str, Any]:
        may_see = may_see_payloads(request)
        shown = str if may_see else without_addresses
        when = humanize.clock(row.created_at, timezone.now())
        facts = [("Who", row.actor_name), ("When", f"{when} UTC"), ("Reason", shown(row.reason))]
        facts += [("Result", row.result), ("Rows", f"{row.rows:,}")]
        facts += [
            (name, shown(_joined(value)) if may_see or name not in SOMEBODYS else "not shown")
            for name, value in row.detail.items()
        ]
        return {"title": f"{row.verb.capitalize()}: {row.subject}", "facts": facts}


def _joined(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
