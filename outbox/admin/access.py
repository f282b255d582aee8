"""Admin pages of accounts and roles: only a superuser changes them, and each change of a right is an action."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, Permission, User
from django.db import models
from django.http import HttpRequest
from django.utils.text import capfirst

from config.admin.levers import operator_of
from outbox.trail.audit import record

State = dict[str, Any]


class RecordedAdmin(admin.ModelAdmin):
    """Only superusers give rights, and what they give or take stands in the trail with what was before."""

    def state_of(self, row: Any) -> State:
        """What decides what this account or role may do."""
        raise NotImplementedError

    def has_add_permission(self, request: HttpRequest) -> bool:
        return _is_superuser(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _is_superuser(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _is_superuser(request)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if change:
            request.__dict__["rights_before"] = self.state_of(self.model._default_manager.get(pk=obj.pk))
        super().save_model(request, obj, form, change)

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._record(request, "add", obj, None, self._now(obj))
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        after = self._now(obj)
        before = request.__dict__.pop("rights_before", after)
        # What is no right is a name, an address, or a password: that it was changed is said, its value is not.
        self._record(request, "change" if before == after else "change_rights", obj, before, after)
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: models.QuerySet) -> Any:
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

    def _now(self, obj: Any) -> State:
        return self.state_of(self.model._default_manager.get(pk=obj.pk))  # without what the row has cached

    def _record(self, request: HttpRequest, verb: str, row: Any, before: Any, after: Any) -> None:
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
