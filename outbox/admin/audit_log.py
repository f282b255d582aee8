"""Admin pages of operator actions, and of accounts and roles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, Permission, User
from django.db import models
from django.http import HttpRequest
from django.utils import timezone
from django.utils.text import capfirst

from config.admin import humanize
from config.admin.filters import ByTime, Segments
from config.admin.levers import operator_of
from config.admin.lists import Keyset
from config.admin.pages import ReadOnlyAdmin, age_column, number_column
from config.telemetry.redaction import without_addresses
from outbox.audit_log.actions import record
from outbox.audit_log.models import ActionSeal, ActionSubject, OperatorAction, verb_in_words

# -- Accounts and roles --------------------------------------------------------------------------------------
# Only a superuser changes them, and each change of a right is an action.
State = dict[str, object]


class RecordedAdmin(admin.ModelAdmin):
    """Only superusers give rights, and what they give or take stands in the trail with what was before."""

    def state_of(self, row: Any) -> State:
        """What decides what this account or role may do."""
        raise NotImplementedError

    def has_add_permission(self, request: HttpRequest) -> bool:
        return _is_superuser(request)

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return _is_superuser(request)

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return _is_superuser(request)

    def save_model(self, request: HttpRequest, obj: models.Model, form: object, change: bool) -> None:
        if change:
            request.__dict__["rights_before"] = self.state_of(self.model._default_manager.get(pk=obj.pk))
        super().save_model(request, obj, form, change)

    def log_addition(self, request: HttpRequest, obj: models.Model, message: object) -> LogEntry:
        self._record(request, "add", obj, None, self._now(obj))
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: models.Model, message: object) -> LogEntry:
        after = self._now(obj)
        before = request.__dict__.pop("rights_before", after)
        # What is no right is a name, an address, or a password: that it was changed is said, its value is not.
        self._record(request, "change" if before == after else "change_rights", obj, before, after)
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: models.QuerySet) -> list[LogEntry]:
        for row in queryset:
            self._record(request, "delete", row, self.state_of(row), None)
        return super().log_deletions(request, queryset)

    def formfield_for_dbfield(self, db_field: models.Field, request: HttpRequest, **kwargs: Any) -> Any:
        """Django labels the two fields of a moment with words beside them only."""
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if isinstance(db_field, models.DateTimeField) and field:
            for widget, part in zip(field.widget.widgets, ("date", "time"), strict=True):
                widget.attrs["aria-label"] = f"{capfirst(str(db_field.verbose_name))}, {part}"
        return field

    def _now(self, obj: models.Model) -> State:
        return self.state_of(self.model._default_manager.get(pk=obj.pk))  # without what the row has cached

    def _record(
        self, request: HttpRequest, verb: str, row: models.Model, before: State | None, after: State | None
    ) -> None:
        noun = str(self.opts.verbose_name)
        record(
            operator_of(request.user), f"{verb}_{noun}" if verb != "change_rights" else verb, f"{noun.capitalize()} {row}",
            reason="", subject_type=self.opts.label_lower, subject_id=row.pk, before=before, after=after,
        )  # fmt: skip


def _is_superuser(request: HttpRequest) -> bool:
    return bool(request.user.is_active and request.user.is_superuser)


def _names(rights: models.QuerySet[Permission]) -> list[str]:
    return sorted(f"{app}.{codename}" for app, codename in rights.values_list("content_type__app_label", "codename"))


class RecordedUserAdmin(RecordedAdmin, UserAdmin):
    """Accounts."""

    def state_of(self, row: User) -> State:
        return {
            "active": row.is_active,
            "staff": row.is_staff,
            "superuser": row.is_superuser,
            "roles": sorted(row.groups.values_list("name", flat=True)),
            "rights": _names(row.user_permissions.all()),
        }


class RecordedGroupAdmin(RecordedAdmin, GroupAdmin):
    """Roles: groups of Django's."""

    def state_of(self, row: Group) -> State:
        return {"rights": _names(row.permissions.all())}


admin.site.unregister([User, Group])
admin.site.register(User, RecordedUserAdmin)
admin.site.register(Group, RecordedGroupAdmin)


# -- Operator actions ----------------------------------------------------------------------------------------
SOMEBODYS = ("note",)  # words of a provider, about somebody
MOST_FOUND = 20


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
        when = humanize.clock(row.created_at, timezone.now())
        facts = [("Who", row.actor_name), ("When", f"{when} UTC"), ("Reason", self.because(row))]
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
