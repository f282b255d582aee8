"""Reveals: who has the right and gives a reason sees the hidden values of one row for a while, and the trail says so."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse

from config.admin import humanize
from config.admin.humanize import pretty
from config.admin.levers import fault_of_reason, operator_of
from config.database.clock import database_now
from config.telemetry.redaction import DOTS, masked, masked_error
from outbox.audit_log.actions import Subject, record
from outbox.audit_log.models import OperatorAction

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractUser, AnonymousUser

RIGHT = "outbox.view_payload"
REVEAL, HIDE = "reveal", "mask_again"
LEAST_REASON = 10


@dataclass(frozen=True)
class Visibility:
    """What somebody sees of one row: dots, unless it is revealed to them now."""

    may: bool = False  # has the right
    until: datetime | None = None
    reason: str = ""
    url: str = ""  # where revealing is asked for

    @property
    def shown(self) -> bool:
        return self.until is not None

    @property
    def minutes(self) -> int:
        return max(1, round(settings.REVEAL_SECONDS / 60))

    def text(self, hidden: str) -> str:
        """A text about which nothing is known."""
        return hidden if self.shown or not hidden else DOTS

    def error(self, text: str) -> str:
        return text if self.shown else masked_error(text)

    def payload(self, payload: Any, readable: Any = (), named: Any = ()) -> str:
        """As a page shows it: whole, or with dots."""
        return pretty(payload if self.shown else masked(payload, readable, named))


def sight_of(user: AbstractUser | AnonymousUser, subject_type: str, subject_id: object, url: str = "") -> Visibility:
    """Read from the trail: the newest reveal of this row by this user counts, for REVEAL_SECONDS."""
    if not user.has_perm(RIGHT):
        return Visibility(url=url)
    about = OperatorAction.objects.filter(
        subject_type=subject_type, subject_id=str(subject_id), actor_number=user.pk, verb__in=(REVEAL, HIDE)
    )
    last = about.newest_first().values_list("verb", "created_at", "reason").first()
    if last is None or last[0] == HIDE:
        return Visibility(may=True, url=url)
    until = last[1] + timedelta(seconds=settings.REVEAL_SECONDS)
    return Visibility(True, until, last[2], url) if until > database_now() else Visibility(may=True, url=url)


def answer(request: HttpRequest, subject_type: str, subject_id: object, words: str, back: str) -> HttpResponse:
    """A POST that reveals a row, or masks it again; back to its page. Raises PermissionDenied."""
    if request.method != "POST" or not request.user.has_perm(RIGHT):
        raise PermissionDenied
    operator = operator_of(request.user)
    about: Subject = {"subject_type": subject_type, "subject_id": subject_id, "url": back}
    reason = request.POST.get("reason", "").strip()
    if "hide" in request.POST:
        record(operator, HIDE, words, reason="", **about)
    elif problem := fault_of_reason(reason, LEAST_REASON):
        messages.error(request, problem)
    else:
        record(
            operator, REVEAL, words, reason=reason, result=f"for {humanize.length(settings.REVEAL_SECONDS)}", **about
        )
    return HttpResponseRedirect(back)


class Revealing(admin.ModelAdmin):
    """For a page of rows with hidden values: the address that reveals one, and what its reader may see."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.reveal_view)
        name = f"{self.opts.app_label}_{self.opts.model_name}_reveal"
        return [path("<path:object_id>/reveal/", view, name=name), *super().get_urls()]

    def reveal_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        row = self.get_object(request, unquote(object_id))
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        if row is None:
            raise Http404
        words = f"{str(self.opts.verbose_name).capitalize()} {row.pk}"
        return answer(request, self.opts.label_lower, row.pk, words, self._page("change", row))

    def sight(self, request: HttpRequest, row: models.Model) -> Visibility:
        return sight_of(request.user, self.opts.label_lower, row.pk, self._page("reveal", row))

    def _page(self, name: str, row: models.Model) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_{name}", args=[quote(row.pk)])
