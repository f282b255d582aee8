"""Admin pages of operator actions."""

from __future__ import annotations

from collections.abc import Sequence

from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import models
from django.http import HttpRequest
from django.utils import timezone
from django.utils.text import capfirst

from config.admin import humanize
from config.admin.export import list_exported
from config.admin.filters import ByTime, Segments
from config.admin.lists import Keyset
from config.admin.pages import ReadOnlyAdmin, age_column, number_column
from config.admin.site import post_refused
from config.telemetry.redaction import without_addresses
from outbox.audit_log.actions import record_export, record_refusal
from outbox.audit_log.models import ActionSeal, ActionSubject, OperatorAction, verb_in_words

SOMEBODYS = ("note",)  # words of a provider, about somebody
MOST_FOUND = 20

# What any page reports stands in the trail.
post_refused.connect(record_refusal, dispatch_uid="outbox.record_refusal")
list_exported.connect(record_export, dispatch_uid="outbox.record_export")


class WhoActed(Segments):
    """The accounts that may pull a lever, and commands; any other name is found by the search."""

    title = "who"
    parameter_name = "who"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> Sequence[tuple[str, str]]:
        staff = User.objects.filter(is_staff=True).order_by("username")[:MOST_FOUND]
        self.choices_in_words = [
            ("all", "Anybody"),
            ("command", "Commands"),
            *((str(user.pk), user.get_full_name() or user.get_username()) for user in staff),
        ]
        return self.choices_in_words

    def queryset(self, request: HttpRequest, queryset: models.QuerySet) -> models.QuerySet:
        chosen = self.chosen()
        if chosen == "all":
            return queryset
        return queryset.filter(actor_number=None if chosen == "command" else int(chosen))


class WhatItWasAbout(Segments):
    """The kind of row."""

    title = "what"
    parameter_name = "what"
    field = "subject_type"
    kinds = (
        "outbox.deadletter outbox.failuregroup outbox.replaybatch outbox.outboxmessage outbox.channelstate "
        "outbox.topicreplay buffer.bufferedevent buffer.bucket buffer.inventorystock throttler.customer "
        "notifications.order notifications.suppression notifications.apitoken auth.user auth.group"
    )

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> Sequence[tuple[str, str]]:
        known = {model._meta.label_lower: str(model._meta.verbose_name_plural) for model in apps.get_models()}
        kinds = [(kind, capfirst(known[kind])) for kind in self.kinds.split() if kind in known]
        self.choices_in_words = [("all", "Anything"), *kinds]
        return self.choices_in_words


@admin.register(OperatorAction)
class OperatorActionAdmin(ReadOnlyAdmin[OperatorAction]):
    place = 70
    keyset = Keyset("created_at", ties_opposed=True)
    list_display = ["did", "when", "who", "because", "result", "count_rows"]
    list_filter = [WhoActed, WhatItWasAbout]
    happened = ByTime("when", "created_at")
    search_fields = ["pk"]
    search_help_text = "Paste the id of a letter, message, customer, … or somebody's name. Exact match."
    empty = (
        "No levers were pulled yet",
        "Whatever somebody changes here or by a command is written down with its reason.",
    )
    when = age_column("created_at", "When")
    count_rows = number_column("rows", "Rows")

    @admin.display(description="Did")
    def did(self, row: OperatorAction) -> str:
        return f"{verb_in_words(row.verb)}: {row.subject}"

    @admin.display(description="Who")
    def who(self, row: OperatorAction) -> str:
        return row.actor_name

    @admin.display(description="Reason")
    def because(self, row: OperatorAction) -> str:
        return without_addresses(row.reason) or humanize.UNKNOWN

    def get_search_results(
        self, request: HttpRequest, queryset: models.QuerySet, search_term: str
    ) -> tuple[models.QuerySet, bool]:
        """By subject or by name, whatever the page: a name may have thousands of actions."""
        key = search_term.strip()[:150]
        if not key:
            return queryset, False
        among = ActionSubject.objects.filter(subject_id=key).values_list("action", flat=True)[:1000]
        about = models.Q(subject_id=key) | models.Q(pk__in=list(among))
        known = OperatorAction.objects.filter(about).exists()
        return queryset.filter(about if known else models.Q(actor_name=key)), False

    def detail(self, request: HttpRequest, row: OperatorAction) -> dict[str, object]:
        when = humanize.clock_in_zone(row.created_at, timezone.now())
        facts = [("Who", row.actor_name), ("When", when), ("Reason", self.because(row))]
        facts += [("Result", row.result), ("Rows", f"{row.rows:,}")]
        facts += [
            (capfirst(name.replace("_", " ")), "not shown" if name in SOMEBODYS else _shown(value))
            for name, value in row.detail.items()
        ]
        facts += [(name, _shown(value)) for name, value in (("Before", row.before), ("After", row.after)) if value]
        seal = ActionSeal.objects.filter(action=row.pk).values_list("number", "hash").first()
        facts += [("Seal", f"{seal[0]:,}: {seal[1][:16]}…" if seal else "not yet")]
        return {"title": self.did(row), "facts": facts}


def _shown(value: object) -> str:
    """As a person writes it: no None, True or brackets."""
    if isinstance(value, dict):
        return "; ".join(f"{name.replace('_', ' ')}: {_shown(part)}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    if value is None or isinstance(value, bool):
        return {None: humanize.UNKNOWN, True: "yes", False: "no"}[value]
    return without_addresses(str(value))
