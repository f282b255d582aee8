"""Levers: what a person may do, always through a page that says what will happen to how many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode

from config import words
from config.clock import database_now

if TYPE_CHECKING:
    from config.window import ReadOnlyAdmin

MISSING = "A reason is required. It is kept with the operator action."
TOO_SHORT = "At least {} characters: whoever reads it next month must understand it."


@dataclass(frozen=True)
class Outcome:
    """How many rows a lever really changed, and in words why others were refused."""

    changed: int
    refused: Sequence[str] = ()


@dataclass(frozen=True)
class Lever:
    """One verb on the rows of one model; `act` is the function that the command calls, too."""

    name: str
    verb: str
    past: str
    icon: str
    right: str  # codename of a permission of the model
    nouns: tuple[str, str]
    promise: str  # what will happen: the bold first words, then the rest
    detail: str
    keep: str  # the words of the button that does nothing
    act: Callable[[list[Any], Any, str], Outcome]  # primary keys, user, reason
    ready: Callable[[models.QuerySet], models.QuerySet]  # rows in a state that allows it
    why_not: Callable[[Any], str]  # one sentence about a row that is not ready
    harm: bool = False
    least: int = 1  # characters of the reason
    question: str = ""  # of the title, when the verb and the count alone would be odd

    def allowed(self, user: Any, opts: Any) -> bool:
        return bool(user.has_perm(f"{opts.app_label}.{self.right}"))

    def right_in_words(self, opts: Any) -> str:
        """What the permission is called where it is granted, without the "Can"."""
        return dict(opts.permissions).get(self.right, self.right).removeprefix("Can ")

    def count(self, number: int) -> str:
        return words.plural(number, *self.nouns)

    def label(self, number: int) -> str:
        """On the button: the verb and the count that was promised."""
        return f"{self.verb} {self.count(number)}" if self.harm or number != 1 else self.verb

    def title(self, number: int) -> str:
        what = f"this {self.nouns[0]}" if number == 1 else self.count(number)
        return f"{self.question or self.verb} {what}?"


@dataclass(frozen=True)
class Handle:
    """A lever as it stands on one row's page: ready to be pulled, or locked with the reason why."""

    lever: Lever
    url: str
    locked: str = ""
    right: str = ""


def handles(window: ReadOnlyAdmin, request: HttpRequest, row: models.Model) -> list[Handle]:
    """Every lever of a row, harmless ones first; none is ever left out."""
    result = []
    for lever in sorted(window.levers, key=lambda lever: lever.harm):
        url = f"{window.lever_url(lever)}?{urlencode({'id': row.pk})}"
        right = "" if lever.allowed(request.user, window.opts) else lever.right_in_words(window.opts)
        state = "" if right or is_ready(lever, row) else lever.why_not(row)
        result.append(Handle(lever, url, locked=state, right=right))
    return result


def is_ready(lever: Lever, row: models.Model) -> bool:
    """The same question as in bulk, so that page and deed cannot disagree."""
    return lever.ready(type(row)._default_manager.filter(pk=row.pk)).exists()


def pull(window: ReadOnlyAdmin, request: HttpRequest, lever: Lever) -> HttpResponse:
    """GET asks, POST does it. A lever without the right answers 403 with the page that says which right."""
    if not window.has_view_permission(request):
        raise PermissionDenied
    given = request.POST if request.method == "POST" else request.GET
    page = Confirmation(window, request, lever, window.rows(request, given.getlist("id")))
    if not lever.allowed(request.user, window.opts):
        return page.show(status=403)
    if request.method != "POST":
        return page.show()
    reason = given.get("reason", "").strip()
    problem = MISSING if not reason else TOO_SHORT.format(lever.least) if len(reason) < lever.least else ""
    return page.show(reason, problem) if problem else page.act(reason)


class Confirmation:
    """The page between the wish and the deed, for one lever and a pinned set of rows."""

    def __init__(
        self, window: ReadOnlyAdmin, request: HttpRequest, lever: Lever, rows: Sequence[models.Model]
    ) -> None:
        self.window, self.request, self.lever, self.rows = window, request, lever, rows

    @property
    def back(self) -> str:
        """The row's page; for several rows the list, with the filters it had."""
        opts = self.window.opts
        if len(self.rows) == 1:
            return reverse(f"admin:{opts.app_label}_{opts.model_name}_change", args=[self.rows[0].pk])
        filters = self.request.GET.get("_changelist_filters") or self.request.POST.get(
            "_changelist_filters", ""
        )
        return reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist") + (
            f"?{filters}" if filters else ""
        )

    def show(self, reason: str = "", problem: str = "", status: int = 200) -> HttpResponse:
        lever, opts = self.lever, self.window.opts
        ready = {row.pk for row in lever.ready(self._rows([row.pk for row in self.rows]))}
        left_out = [(row, lever.why_not(row)) for row in self.rows if row.pk not in ready]
        context = {
            **self.window.admin_site.each_context(self.request),
            "title": lever.title(len(ready)) if ready else f"{lever.verb}: nothing to do",
            "opts": opts,
            "lever": lever,
            "label": lever.label(len(ready)),
            "ready": [row for row in self.rows if row.pk in ready],
            "left_out": left_out,
            "right": "" if status == 200 else lever.right_in_words(opts),
            "pinned_at": database_now(),
            "reason": reason,
            "problem": problem,
            "back": self.back,
            "filters": self.request.GET.get("_changelist_filters")
            or self.request.POST.get("_changelist_filters"),
        }
        return TemplateResponse(self.request, "admin/confirm.html", context, status=status)

    def act(self, reason: str) -> HttpResponse:
        """Pull it, say what became of it, and go back: a reload must not pull it again."""
        keys = [row.pk for row in self.rows]
        ready = list(self.lever.ready(self._rows(keys)).values_list("pk", flat=True))
        outcome = self.lever.act(ready, self.request.user, reason) if ready else Outcome(0)
        level = messages.SUCCESS if outcome.changed == len(keys) > 0 else messages.WARNING
        messages.add_message(self.request, level, self._result(outcome, keys))
        return HttpResponseRedirect(self.back)

    def _result(self, outcome: Outcome, keys: list[Any]) -> str:
        lever = self.lever
        refused = " ".join(outcome.refused[:3])
        if outcome.changed == len(keys):
            return f"{lever.past} {lever.count(outcome.changed)}."
        if outcome.changed:
            return f"{lever.past} {outcome.changed:,} of {lever.count(len(keys))}. {refused}".strip()
        row = self._rows(keys).first() if len(keys) == 1 else None
        why = refused or (lever.why_not(row) if row else "Somebody was faster.")
        return f"{why} Nothing was changed."

    def _rows(self, keys: list[Any]) -> models.QuerySet:
        return self.window.get_queryset(self.request).filter(pk__in=keys)
