"""Admin pages of logins: the failures that count at present, and who logged in or failed to."""

from __future__ import annotations

from axes.models import AccessAttempt, AccessBase, AccessFailureLog, AccessLog
from django.conf import settings
from django.contrib import admin
from django.db import models
from django.http import HttpRequest

from config.admin import humanize
from config.admin.filters import ByNumber
from config.admin.html import chip
from config.admin.pages import ReadOnlyAdmin, age_column, number_column


class LoginAdmin(ReadOnlyAdmin):
    """What the pages of logins share."""

    happened = ByNumber("when", "attempt_time")
    search_fields = ["pk"]
    search_help_text = "Paste a user name. Exact match."
    when = age_column("attempt_time", "When")

    def get_queryset(self, request: HttpRequest) -> models.QuerySet:
        return super().get_queryset(request).order_by()

    def get_search_results(
        self, request: HttpRequest, queryset: models.QuerySet, search_term: str
    ) -> tuple[models.QuerySet, bool]:
        name = search_term.strip()
        return (queryset.filter(username=name) if name else queryset), False

    @admin.display(description="Name")
    def who(self, row: AccessBase) -> str:
        return row.username or humanize.UNKNOWN

    @admin.display(description="From")
    def address(self, row: AccessBase) -> str:
        return row.ip_address or humanize.UNKNOWN

    def detail(self, request: HttpRequest, row: AccessBase) -> dict[str, object]:
        return {
            "title": f"{str(self.opts.verbose_name).capitalize()}: {self.who(row)}",
            "facts": [
                ("Name", self.who(row)),
                ("From", self.address(row)),
                ("When", f"{humanize.stamp(row.attempt_time)}"),
                ("Page", row.path_info),
                ("Browser", row.user_agent or humanize.UNKNOWN),
                *self.more(row),
            ],
        }

    def more(self, row: AccessBase) -> list[tuple[str, str]]:
        return []


@admin.register(AccessAttempt)
class AccessAttemptAdmin(LoginAdmin):
    place = 10
    list_display = ["who", "address", "failures", "locks", "when"]
    empty = ("No failed logins count at present", "Wrong passwords of the last minutes stand here.")
    failures = number_column("failures_since_start", "Failures")

    @admin.display(description="State")
    def locks(self, row: AccessAttempt) -> str:
        return chip("auth", "Locked out") if row.failures_since_start >= settings.LOGIN_MOST_FAILURES else "counted"

    def more(self, row: AccessAttempt) -> list[tuple[str, str]]:
        return [("Failures", f"{row.failures_since_start:,}")]


@admin.register(AccessFailureLog)
class AccessFailureLogAdmin(LoginAdmin):
    place = 20
    list_display = ["who", "address", "locked", "when"]
    empty = ("No failed logins", "Each wrong password is written down here.")

    @admin.display(description="Result")
    def locked(self, row: AccessFailureLog) -> str:
        return chip("auth", "Locked out") if row.locked_out else "wrong password"


@admin.register(AccessLog)
class AccessLogAdmin(LoginAdmin):
    place = 30
    list_display = ["who", "address", "when", "left"]
    empty = ("Nobody has logged in yet", "Each login is written down here.")
    left = age_column("logout_time", "Logged out")
