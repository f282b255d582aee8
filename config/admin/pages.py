"""The base of every admin page: rows are read, never edited; a lever asks before it acts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Protocol

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import SEARCH_VAR
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import models
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from config.admin import humanize
from config.admin.html import moment
from config.admin.levers import Lever, LeverResult, fault_of_reason
from config.admin.lists import Keyset, KeysetChangeList
from config.database.clock import database_now


# -- The confirmation page of a lever: what it will do, to how many rows, and why ----------------------------
class LeverPage(Protocol):
    """What a confirmation needs of the admin page whose lever it is (`config/admin/pages.py:ReadOnlyAdmin`)."""

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


# -- The base of every admin page: rows are read, never edited; levers change them ---------------------------
EVERY = "all"  # the choice of a filter that leaves the list as it is


class Segments(admin.SimpleListFilter):
    """A filter with a few fixed choices; the first one is the default.

    A search asks for one row by its key: it looks in "all", where there is such a choice, and the page shows that.
    """

    template = "admin/filter.html"
    choices_in_words: Sequence[tuple[str, str]] = ()
    field = ""  # what the choice is compared with; "all" leaves the list as it is

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        self.searching = bool(request.GET.get(SEARCH_VAR, "").strip())
        super().__init__(request, params, model, model_admin)

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        return self.choices_in_words

    def queryset(self, request: HttpRequest, queryset: models.QuerySet) -> models.QuerySet:
        chosen = self.chosen()
        return queryset if chosen == EVERY else queryset.filter(**{self.field: chosen})

    def chosen(self) -> str:
        known = [value for value, _ in self.choices_in_words]
        if self.searching and EVERY in known:
            return EVERY
        return self.value() if self.value() in known else known[0]  # type: ignore[return-value]

    def choices(self, changelist: Any) -> Iterator[Any]:
        for value, words_ in self.choices_in_words:
            query = changelist.get_query_string({self.parameter_name: value})
            yield {"selected": value == self.chosen(), "query_string": query, "display": words_}


class ReadOnlyAdmin(admin.ModelAdmin):
    """Base of every admin page: read-only. Subclasses say what the list and the page show, and name the levers."""

    place = 50  # in the sidebar, from the top
    keyset = Keyset()
    levers: Sequence[Lever] = ()
    tabs: Sequence[tuple[str, str]] = ()  # (words, name of a changelist)
    links: Sequence[str] = ()  # lookups by which other pages link to the list
    empty: tuple[str, str] = ("", "")  # what an empty list means, when that is good news
    list_per_page = 50
    show_full_result_count = False
    sortable_by = ()
    list_max_show_all = 0

    # -- The list -------------------------------------------------------------------------------
    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeysetChangeList]:
        return KeysetChangeList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only the list's own filters and `links`: Django allows any field, and `payload__startswith` reads hidden text by guessing."""
        filters: Any = self.list_filter
        return lookup in {*self.links, *(found.parameter_name for found in filters)}

    def narrowed_to(self, lookup: str, value: Any) -> str:
        """What a link from another page narrows the list to, in words."""
        return str(value)

    def way_back(self, request: HttpRequest) -> tuple[str, str]:
        """(words, address) of the link that leads out of a narrowed list."""
        return "Show all", "?"

    def keyset_for(self, changelist: KeysetChangeList) -> Keyset:
        """The order of this list, which may depend on its filters."""
        return self.keyset

    def find(self, key: str) -> Iterable[models.Model]:
        """The rows with this key, for the search in the header: exact matches by an index, never a scan."""
        return ()

    def words(self, row: Any) -> str:
        """What a row is called in the list of hits."""
        return str(row)

    def shortcut(self, request: HttpRequest, row: Any) -> tuple[str, str]:
        """(words, address) of the lever that a hit of the search offers at once; empty where there is none."""
        return "", ""

    def get_search_results(
        self, request: HttpRequest, queryset: models.QuerySet, search_term: str
    ) -> tuple[models.QuerySet, bool]:
        term = search_term.strip()
        if term:
            queryset = queryset.filter(pk__in=[row.pk for row in self.find(term)])
        return queryset, False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        title = str(self.opts.verbose_name_plural).capitalize()
        return super().changelist_view(request, {"title": title, **(extra_context or {})})

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        return {lever.name: (partial(_to_confirmation, lever), lever.name, f"{lever.verb}…") for lever in self.levers}

    # -- One row --------------------------------------------------------------------------------
    def detail(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """What the page of one row shows beyond its levers."""
        return {}

    def offered(self, request: HttpRequest, states: list[LeverState], row: Any) -> list[LeverState]:
        """The levers as the page of one row shows them."""
        return states

    def rows(self, request: HttpRequest, keys: Sequence[str]) -> list[Any]:
        """The rows selected for a lever, in the order of the list; at most one page."""
        try:
            known = [self.opts.pk.to_python(key) for key in keys[: self.list_per_page]]
        except ValidationError:
            raise Http404 from None
        return list(self.get_queryset(request).filter(pk__in=known).order_by("-pk"))

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        # No key holds U+0000, and PostgreSQL fails when it is asked for one.
        return None if "\x00" in object_id else super().get_object(request, object_id, from_field)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        row = self.get_object(request, unquote(object_id))
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        if row is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined]
        label, name = self.opts.app_label, self.opts.model_name
        context = {
            **self.admin_site.each_context(request),
            "title": str(row),
            "opts": self.opts,
            "original": row,
            "row": row,
            "now": database_now(),
            "lever_states": self.offered(request, lever_states(self, request, row), row),
            **self.detail(request, row),
        }
        templates = [f"admin/{label}/{name}/detail.html", "admin/detail.html"]
        return TemplateResponse(request, templates, context)

    # -- Levers ---------------------------------------------------------------------------------
    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.lever_view)
        name = f"{self.opts.app_label}_{self.opts.model_name}_lever"
        return [path("lever/<slug:name>/", view, name=name), *super().get_urls()]

    def lever_url(self, lever: Lever) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_lever", args=[lever.name])

    def lever_view(self, request: HttpRequest, name: str) -> HttpResponse:
        lever = next((lever for lever in self.levers if lever.name == name), None)
        if lever is None:
            raise Http404
        return pull(self, request, lever)

    # -- Rights: what cannot be done is not offered by Django's own pages ---------------------------
    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def _to_confirmation(
    lever: Lever, page: ReadOnlyAdmin, request: HttpRequest, queryset: models.QuerySet
) -> HttpResponse:
    """An action of the list: carry the selection to the lever's own page."""
    query: dict[str, Any] = {"id": request.POST.getlist(ACTION_CHECKBOX_NAME)}
    if request.GET:
        query["_changelist_filters"] = request.GET.urlencode()
    return HttpResponseRedirect(f"{page.lever_url(lever)}?{urlencode(query, doseq=True)}")


def age_column(field: str, title: str) -> Callable[[Any, Any], str]:
    """A column that says how long ago; the absolute time is in its title."""

    @admin.display(description=title)
    def column(page: Any, row: Any) -> str:
        when: datetime | None = getattr(row, field)
        return moment(when, humanize.ago(when, timezone.now()))

    return column


def number_column(field: str, title: str, nouns: tuple[str, str] = ("", "")) -> Callable[[Any, Any], SafeString]:
    """A right-aligned number with thousands separators; `nouns`, of one and of many, follow where no heading is seen."""

    @admin.display(description=title)
    def column(page: Any, row: Any) -> SafeString:
        value = getattr(row, field)
        number = humanize.UNKNOWN if value is None else f"{value:,}"
        noun = nouns[value != 1] and format_html(' <small class="sw-narrow-only">{}</small>', nouns[value != 1])
        return format_html('<span class="sw-number">{}{}</span>', number, noun)

    return column
