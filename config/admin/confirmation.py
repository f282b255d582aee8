"""The confirmation page of a lever: what it will do, to how many rows, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode

from config.admin.levers import Lever, LeverResult, fault_of_reason
from config.database.clock import database_now


class LeverPage(Protocol):
    """What a confirmation needs of the admin page whose lever it is (`config/admin/read_only.py:ReadOnlyAdmin`)."""

    opts: Any
    admin_site: Any
    levers: Sequence[Lever]

    def lever_url(self, lever: Lever) -> str: ...
    def rows(self, request: HttpRequest, keys: Sequence[str]) -> list[Any]: ...
    def get_queryset(self, request: HttpRequest) -> models.QuerySet: ...
    def has_view_permission(self, request: HttpRequest) -> bool: ...


@dataclass(frozen=True)
class LeverState:
    """A lever on the page of one row: ready, without the right, or impossible for a reason. The last is not drawn."""

    lever: Lever
    url: str
    locked: str = ""
    right: str = ""
    posts: bool = False  # its page is what follows a POST: a draft to be looked at
    role: str = ""  # the least one that has the right


def lever_states(page: LeverPage, request: HttpRequest, row: models.Model) -> list[LeverState]:
    """All levers of a row, harmless ones first; a locked one is shown with its reason."""
    result = []
    allowed = [lever for lever in page.levers if lever.allowed(request.user, page.opts)]
    ready = {rule: finds(rule, row) for rule in {lever.ready for lever in allowed}}  # several levers may share a rule
    for lever in sorted(page.levers, key=lambda lever: lever.harm):
        url = f"{page.lever_url(lever)}?{urlencode({'id': row.pk})}"
        right = "" if lever in allowed else lever.right_in_words(page.opts)
        state = "" if right or ready[lever.ready] else lever.why_not(row)
        result.append(LeverState(lever, url, locked=state, right=right, role=lever.role(page.opts) if right else ""))
    return result


def finds(rule: Callable[[Any], models.QuerySet], row: models.Model) -> bool:
    """Whether a lever's own query finds this row: the page and the lever use one rule."""
    return rule(type(row)._default_manager.filter(pk=row.pk)).exists()


def pull(page: LeverPage, request: HttpRequest, lever: Lever) -> HttpResponse:
    """GET shows the confirmation, POST carries it out. Without the right: 403, and the page names the right."""
    if not page.has_view_permission(request):
        raise PermissionDenied
    given = request.POST if request.method == "POST" else request.GET
    confirmation = Confirmation(page, request, lever, page.rows(request, given.getlist("id")))
    if not lever.allowed(request.user, page.opts):
        return confirmation.show(status=403)
    if request.method != "POST":
        return confirmation.show()
    reason = given.get("reason", "").strip()
    choice = given.get("choice", "")
    if lever.choices and choice not in dict(lever.options):
        return confirmation.show(reason, f"{lever.choices_label}: choose one.")
    problem = fault_of_reason(reason, lever.least)
    return confirmation.show(reason, problem, choice=choice) if problem else confirmation.act(reason, choice)


class Confirmation:
    """The confirmation of one lever for a fixed set of rows."""

    def __init__(self, page: LeverPage, request: HttpRequest, lever: Lever, rows: Sequence[models.Model]) -> None:
        self.page, self.request, self.lever, self.rows = page, request, lever, rows

    @property
    def back(self) -> str:
        """The row's page; for several rows the list, with the filters it had."""
        opts = self.page.opts
        if len(self.rows) == 1:
            return reverse(f"admin:{opts.app_label}_{opts.model_name}_change", args=[self.rows[0].pk])
        filters = self.request.GET.get("_changelist_filters") or self.request.POST.get("_changelist_filters", "")
        return reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist") + (f"?{filters}" if filters else "")

    def show(self, reason: str = "", problem: str = "", status: int = 200, choice: str = "") -> HttpResponse:
        lever, opts = self.lever, self.page.opts
        ready = {row.pk for row in lever.ready(self._rows([row.pk for row in self.rows]))}
        left_out = [(row, lever.why_not(row)) for row in self.rows if row.pk not in ready]
        context = {
            **self.page.admin_site.each_context(self.request),
            "title": lever.title(len(ready)) if ready else f"{lever.verb}: nothing to do",
            "opts": opts,
            "lever": lever,
            "label": lever.label(len(ready)),
            "ready": [row for row in self.rows if row.pk in ready],
            "left_out": left_out,
            "why_nothing": " ".join(list(dict.fromkeys(why for _row, why in left_out))[:3]),
            "right": "" if status == 200 else lever.right_in_words(opts),
            "role": "" if status == 200 else lever.role(opts),
            "pinned_at": database_now(),
            "reason": reason,
            "problem": problem,
            "choice": choice,
            "back": self.back,
            "filters": self.request.GET.get("_changelist_filters") or self.request.POST.get("_changelist_filters"),
        }
        return TemplateResponse(self.request, "admin/confirm.html", context, status=status)

    def act(self, reason: str, choice: str = "") -> HttpResponse:
        """Carry it out, report the result, and redirect, so that a reload does not repeat it."""
        keys = [row.pk for row in self.rows]
        ready = list(self.lever.ready(self._rows(keys)).values_list("pk", flat=True))
        outcome = self.lever.pull(ready, self.request.user, reason, choice)
        done = outcome.changed == len(keys) > 0 and not outcome.failed
        level = messages.SUCCESS if done else messages.WARNING
        messages.add_message(self.request, level, self._result(outcome, keys))
        return HttpResponseRedirect(self.back)

    def _result(self, outcome: LeverResult, keys: list[Any]) -> str:
        lever = self.lever
        refused = " ".join(outcome.refused[:3])
        if outcome.failed:
            tried = f"{len(outcome.failed):,} of {lever.count(len(keys))} failed again."
            return f"{tried} {' '.join(outcome.failed[:3])} {refused}".strip()
        if outcome.changed == len(keys):
            return f"{lever.past} {lever.count(outcome.changed)}."
        if outcome.changed:
            return f"{lever.past} {outcome.changed:,} of {lever.count(len(keys))}. {refused}".strip()
        row = self._rows(keys).first() if len(keys) == 1 else None
        why = refused or (f"{lever.why_not(row)} {lever.faster(row)}".strip() if row else "Somebody was faster.")
        return f"{why} Nothing was changed."

    def _rows(self, keys: list[Any]) -> models.QuerySet:
        return self.page.get_queryset(self.request).filter(pk__in=keys)
