"""The base of every admin page and its list: rows are read, never edited; a lever asks before it acts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied, SuspiciousOperation, ValidationError
from django.db import DataError, models
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from config import replica
from config.admin import export, humanize
from config.admin.filters import EVERY, TIMES, ByTime, WithinTime, list_without_strangers
from config.admin.forms import LeverForm, NamedMoments
from config.admin.html import moment
from config.admin.levers import Lever, LeverResult
from config.admin.lists import AFTER, BEFORE, Keyset
from config.admin.search import Row, Searched
from config.database.clock import database_now

Shown = TypeVar("Shown", bound=str)


# -- The confirmation of a lever -----------------------------------------------------------------------------
@dataclass(frozen=True)
class LeverState:
    """A lever on the page of one row: ready, without the right, or impossible for a reason. The last is not drawn."""

    lever: Lever
    url: str
    locked: str = ""
    right: str = ""
    posts: bool = False  # its page is what follows a POST: a draft to be looked at
    role: str = ""  # the least one that has the right


def lever_states(page: ReadOnlyAdmin, request: HttpRequest, row: models.Model) -> list[LeverState]:
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


def finds(rule: Callable[[models.QuerySet], models.QuerySet], row: models.Model) -> bool:
    """Whether a lever's own query finds this row: the page and the lever use one rule."""
    return rule(type(row)._default_manager.filter(pk=row.pk)).exists()


def pull(page: ReadOnlyAdmin, request: HttpRequest, lever: Lever) -> HttpResponse:
    """GET shows the confirmation, POST carries it out. Without the right: 403, and the page names the right."""
    if not page.has_view_permission(request):
        raise PermissionDenied
    given = request.POST if request.method == "POST" else request.GET
    confirmation = Confirmation(page, request, lever, page.rows(request, given.getlist("id")))
    form = LeverForm(lever, request.POST if request.method == "POST" else None)
    if not lever.allowed(request.user, page.opts):
        return confirmation.show(form, status=403)
    return confirmation.act(form) if form.is_valid() else confirmation.show(form)


class Confirmation:
    """The confirmation of one lever for a fixed set of rows."""

    def __init__(self, page: ReadOnlyAdmin, request: HttpRequest, lever: Lever, rows: Sequence[models.Model]) -> None:
        self.page, self.request, self.lever, self.rows = page, request, lever, rows
        self.filters = request.GET.get("_changelist_filters") or request.POST.get("_changelist_filters", "")

    @property
    def back(self) -> str:
        """The row's page; for several rows the list, with the filters it had."""
        opts = self.page.opts
        if len(self.rows) == 1:
            return reverse(f"admin:{opts.app_label}_{opts.model_name}_change", args=[self.rows[0].pk])
        url = reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist")
        return f"{url}?{self.filters}" if self.filters else url

    def show(self, form: LeverForm, status: int = 200) -> HttpResponse:
        lever, opts = self.lever, self.page.opts
        ready = {row.pk for row in lever.ready(self._rows([row.pk for row in self.rows]))}
        promise, detail = lever.promise_of([row for row in self.rows if row.pk in ready])
        left_out = [(row, lever.why_not(row)) for row in self.rows if row.pk not in ready]
        context = {
            **self.page.admin_site.each_context(self.request),
            "title": lever.title(len(ready)) if ready else f"{lever.verb}: nothing to do",
            "opts": opts,
            "lever": lever,
            "promise": promise or lever.promise,
            "detail": detail or lever.detail,
            "label": lever.label(len(ready)),
            "ready": [row for row in self.rows if row.pk in ready],
            "left_out": left_out,
            "why_nothing": " ".join(list(dict.fromkeys(why for _row, why in left_out))[:3]),
            "right": "" if status == 200 else lever.right_in_words(opts),
            "role": "" if status == 200 else lever.role(opts),
            "pinned_at": database_now(),
            "form": form,
            "back": self.back,
            "filters": self.filters,
        }
        return TemplateResponse(self.request, "admin/confirm.html", context, status=status)

    def act(self, form: LeverForm) -> HttpResponse:
        """Carry it out, report the result, and redirect, so that a reload does not repeat it."""
        keys = [row.pk for row in self.rows]
        ready = list(self.lever.ready(self._rows(keys)).values_list("pk", flat=True))
        outcome = self.lever.pull(ready, self.request.user, form.cleaned_data["reason"], form.choice)
        done = outcome.changed == len(keys) > 0 and not outcome.failed
        level = messages.SUCCESS if done else messages.WARNING
        said = self._result(outcome, keys)
        said = format_html("{} {}", said, outcome.next_step) if outcome.next_step else said
        messages.add_message(self.request, level, said)
        if len(keys) == 1 and not self._rows(keys).exists():
            self.rows = []  # the lever has taken the row away: its list is what is left
        return HttpResponseRedirect(self.back)

    def _result(self, outcome: LeverResult, keys: list[object]) -> str:
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

    def _rows(self, keys: list[object]) -> models.QuerySet:
        return self.page.get_queryset(self.request).filter(pk__in=keys)


# -- The base of every page ----------------------------------------------------------------------------------
class KeysetChangeList(ChangeList):
    """Django's changelist without counts and page numbers."""

    model_admin: ReadOnlyAdmin
    newer = older = read_from = ""
    behind = ""  # the cursor of its last row, where more rows follow
    narrowed: Sequence[str] = ()
    within: WithinTime | None = None  # the time range that narrows it
    way_back: tuple[str, str] = ("", "")

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        self.backwards = bool(request.GET.get(AFTER))
        self.place = request.GET.get(AFTER) or request.GET.get(BEFORE) or ""
        super().__init__(request, *args, **kwargs)

    def get_filters_params(self, params: dict[str, Any] | None = None) -> dict[str, Any]:
        given = super().get_filters_params(params)
        return {name: value for name, value in given.items() if name not in (BEFORE, AFTER)}

    def get_filters(self, request: HttpRequest) -> Any:
        filters = super().get_filters(request)
        self.within = next(
            (shown for shown in filters[0] if isinstance(shown, WithinTime) and shown.chosen() != EVERY), None
        )
        # Links from other pages narrow a list by plain lookups; a list must say that it is not the whole.
        try:
            self.narrowed = [
                self.model_admin.narrowed_to(name, value[-1] if isinstance(value, list) else value)
                for name, value in filters[2].items()
            ]
            self.way_back = self.model_admin.way_back(request)
        except (ValueError, ValidationError) as error:  # what a number or an id is expected of
            raise IncorrectLookupParameters(error) from error
        return filters

    def get_query_string(self, new_params: dict[str, Any] | None = None, remove: Iterable[str] | None = None) -> str:
        # Another filter or another search starts at the first page.
        return str(super().get_query_string(new_params, [*(remove or []), BEFORE, AFTER]))

    @property
    def csv_url(self) -> str:
        """Where all its rows can be had as a file."""
        opts = self.model_admin.opts
        return reverse(f"admin:{opts.app_label}_{opts.model_name}_csv") + self.get_query_string()

    @property
    def any_time(self) -> str:
        """The address of the same list without its time range."""
        return self.get_query_string(remove=TIMES)

    def get_results(self, request: HttpRequest) -> None:
        self.keyset: Keyset = self.model_admin.keyset_for(self)
        if begun := request.__dict__.pop("begun", ""):
            self.narrowed = [*self.narrowed, begun]
        try:
            rows, more = self.keyset.page(self.queryset, self.place, self.backwards, self.list_per_page)
        except (ValidationError, DataError) as error:
            raise IncorrectLookupParameters(error) from error
        self.show(rows)
        self.read_from = f"Read from the replica, {replica.lag.in_words()}" if replica.is_read() else ""
        self.behind = self.keyset.cursor(rows[-1]) if rows and more else ""
        if rows and (more if self.backwards else self.place):
            self.newer = self.get_query_string({AFTER: self.keyset.cursor(rows[0])})
        if rows and (more or self.backwards):
            self.older = self.get_query_string({BEFORE: self.keyset.cursor(rows[-1])})

    def show(self, rows: Sequence[models.Model]) -> None:
        """These rows, without a count of all and without page numbers."""
        self.result_list, self.result_count, self.full_result_count = rows, len(rows), None
        self.show_full_result_count = self.can_show_all = self.multi_page = False
        self.show_admin_actions = bool(rows)
        self.paginator = None


class ReadOnlyAdmin(NamedMoments, Searched[Row]):
    """Base of every admin page: read-only. Subclasses say what the list and the page show, and name the levers."""

    place = 50  # in the sidebar, from the top
    keyset = Keyset()
    levers: Sequence[Lever] = ()
    tabs: Sequence[tuple[str, str]] = ()  # (words, name of a changelist)
    links: Sequence[str] = ()  # lookups by which other pages link to the list
    happened: ByTime | None = None  # what the time range is about; None in a list of what is there now
    empty: tuple[str, str] = ("", "")  # what an empty list means; that of a changelist is good news
    list_per_page = 50
    show_full_result_count = False
    sortable_by = ()
    list_max_show_all = 0

    # -- The list -------------------------------------------------------------------------------
    def get_changelist(self, request: HttpRequest, **kwargs: object) -> type[KeysetChangeList]:
        return KeysetChangeList

    def get_list_filter(self, request: HttpRequest | None) -> list[Any]:
        """Its own filters, and the time range of a list of what happened."""
        return [*self.list_filter, *([WithinTime] if self.happened else [])]

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only the list's own filters and `links`: Django allows any field, and `payload__startswith` reads hidden text by guessing."""
        own = (getattr(shown, "parameter_name", "") for shown in self.list_filter)
        return lookup in {*self.links, *own, *(TIMES if self.happened else ())}

    def narrowed_to(self, lookup: str, value: object) -> str:
        """What a link from another page narrows the list to, in words."""
        return str(value)

    def way_back(self, request: HttpRequest) -> tuple[str, str]:
        """(words, address) of the link that leads out of a narrowed list."""
        return "Show all", "?"

    def keyset_for(self, changelist: KeysetChangeList) -> Keyset:
        """The order of this list, which may depend on its filters."""
        return self.keyset

    def changelist_view(self, request: HttpRequest, extra_context: Mapping[str, object] | None = None) -> HttpResponse:
        """A list of what happened is read from the replica, where there is one; what is there now from the primary."""
        if elsewhere := list_without_strangers(self, request):
            return elsewhere
        context = {"title": str(self.opts.verbose_name_plural).capitalize(), **(extra_context or {})}
        may_lag, answer = bool(self.happened) and request.method == "GET", super().changelist_view
        return replica.for_reader(request, may_lag, lambda: answer(request, context))

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """The menu of the list: the levers that this user may pull. A page of one row says which rights are missing."""
        return {
            lever.name: (partial(_to_confirmation, lever), lever.name, f"{lever.verb}…")
            for lever in self.levers
            if lever.allowed(request.user, self.opts)
        }

    def csv_view(self, request: HttpRequest) -> HttpResponseBase:
        """POST answers with all rows of the list as CSV: it is written down, so no link and no preview fetches it."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        back = HttpResponseRedirect(f"../?{request.GET.urlencode()}")
        if request.method != "POST":
            return back
        try:
            changelist: Any = self.get_changelist_instance(request)
        except (IncorrectLookupParameters, SuspiciousOperation):
            return back
        fault = changelist.within.fault if changelist.within else ""
        return back if fault else export.answer(request, changelist, may_lag=bool(self.happened))

    # -- One row --------------------------------------------------------------------------------
    def detail(self, request: HttpRequest, row: Row) -> dict[str, object]:
        """What the page of one row shows beyond its levers; its `now` where it has asked the clock itself."""
        return {}

    def offered(self, request: HttpRequest, states: list[LeverState], row: Row) -> list[LeverState]:
        """The levers as the page of one row shows them."""
        return states

    def rows(self, request: HttpRequest, keys: Sequence[str]) -> list[Row]:
        """The rows selected for a lever, in the order of the list; at most one page."""
        try:
            known = [self.opts.pk.to_python(key) for key in keys[: self.list_per_page]]
        except ValidationError:
            raise Http404 from None
        return list(self.get_queryset(request).filter(pk__in=known).order_by("-pk"))

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Row | None:
        # No key holds U+0000, and PostgreSQL fails when it is asked for one.
        return None if "\x00" in object_id else super().get_object(request, object_id, from_field)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: Mapping[str, object] | None = None,
    ) -> HttpResponse:
        row = self.get_object(request, unquote(object_id))
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        if row is None:
            words = f"{self.opts.verbose_name} with ID “{unquote(object_id)}” doesn’t exist. Perhaps it was deleted?"
            self.message_user(request, words, messages.WARNING)
            return HttpResponseRedirect(reverse("admin:index"))
        label, name = self.opts.app_label, self.opts.model_name
        shown = self.detail(request, row)
        context = {
            **self.admin_site.each_context(request),
            "title": str(row),
            "opts": self.opts,
            "original": row,
            "row": row,
            "now": shown.get("now") or database_now(),
            "lever_states": self.offered(request, lever_states(self, request, row), row),
            **shown,
        }
        templates = [f"admin/{label}/{name}/detail.html", "admin/detail.html"]
        if request.GET.get("part"):  # what the refresh script lays over the page
            templates.insert(0, f"admin/{label}/{name}/part.html")
            context["around"] = "admin/parts/bare.html"
        return TemplateResponse(request, templates, context)

    # -- Levers ---------------------------------------------------------------------------------
    def get_urls(self) -> list[URLPattern]:
        view, name = self.admin_site.admin_view, f"{self.opts.app_label}_{self.opts.model_name}"
        mine = [
            path("lever/<slug:name>/", view(self.lever_view), name=f"{name}_lever"),
            path("csv/", view(self.csv_view), name=f"{name}_csv"),
        ]
        return [*mine, *super().get_urls()]

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

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False


def _to_confirmation(
    lever: Lever, page: ReadOnlyAdmin, request: HttpRequest, queryset: models.QuerySet
) -> HttpResponse:
    """An action of the list: carry the selection to the lever's own page."""
    query: dict[str, str | list[str]] = {"id": request.POST.getlist(ACTION_CHECKBOX_NAME)}
    if request.GET:
        query["_changelist_filters"] = request.GET.urlencode()
    return HttpResponseRedirect(f"{page.lever_url(lever)}?{urlencode(query, doseq=True)}")


def age_column(field: str, title: str) -> Callable[[object, models.Model], str]:
    """A column that says how long ago; the absolute time is in its title."""

    @admin.display(description=title)
    def column(page: object, row: models.Model) -> str:
        when: datetime | None = getattr(row, field)
        return moment(when, humanize.ago(when, timezone.now()))

    return in_file(column, lambda row: export.time(getattr(row, field)))


def number_column(
    field: str, title: str, nouns: tuple[str, str] = ("", "")
) -> Callable[[object, models.Model], SafeString]:
    """A right-aligned number with thousands separators; `nouns`, of one and of many, follow where no heading is seen."""

    @admin.display(description=title)
    def column(page: object, row: models.Model) -> SafeString:
        value = getattr(row, field)
        number = humanize.UNKNOWN if value is None else f"{value:,}"
        noun = nouns[value != 1] and format_html(' <small class="sw-narrow-only">{}</small>', nouns[value != 1])
        return format_html('<span class="sw-number">{}{}</span>', number, noun)

    return in_file(column, lambda row: humanize.UNKNOWN if getattr(row, field) is None else str(getattr(row, field)))


def in_file(column: Callable[..., Shown], text: Callable[[models.Model], str]) -> Callable[..., Shown]:
    """A column of which a CSV holds `text`, which no spreadsheet calculates, without making its HTML first."""
    column.__dict__["in_file"] = text
    return column
