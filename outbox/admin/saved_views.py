"""Named views of lists: saved above a list, opened by a link, renamed and deleted on a page of their own."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from django.contrib import admin, messages
from django.contrib.admin.views.main import SEARCH_VAR
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, models, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.text import capfirst

from config.admin.html import steered
from config.admin.levers import Lever, LeverResult, Operator, operator_of
from config.admin.pages import ReadOnlyAdmin, age_column
from config.database.clock import database_now
from config.letters import Refusal
from outbox.accounts.models import SavedView
from outbox.audit_log.actions import record

MOST = 30  # of a person
LONGEST_QUERY, LONGEST_NAME = 1000, 80  # as the columns
SHARE, KEEP = "outbox.share_savedview", "outbox.keep_savedview"
SUBJECT = "outbox.savedview"


def pages() -> dict[str, ReadOnlyAdmin]:
    """The lists that can have views, by the label of their model."""
    return {page.opts.label_lower: page for page in admin.site._registry.values() if isinstance(page, ReadOnlyAdmin)}


def known_part(page: ReadOnlyAdmin, query: str) -> str:
    """Of a list's address what narrows it: no page of it, and nothing that this list does not know."""
    given = QueryDict(query, mutable=True)
    for name in list(given):
        if name != SEARCH_VAR and not page.lookup_allowed(name, str(given[name])):
            del given[name]
    return given.urlencode()


def address_of(view: SavedView) -> str:
    """Where it leads: always to a list of ours; empty when that list is gone."""
    page = pages().get(view.list)
    if page is None:
        return ""
    url = reverse(f"admin:{page.opts.app_label}_{page.opts.model_name}_changelist")
    return f"{url}?{view.query}" if view.query else url


def save(page: ReadOnlyAdmin, operator: Operator, name: str, query: str, *, shared: bool) -> SavedView:
    """Keep a list's filters under a name. Raises Refusal."""
    name, query = _checked(name), known_part(page, query)
    if len(query) > LONGEST_QUERY:
        raise Refusal("These filters are too long to be kept.")
    with transaction.atomic():
        User.objects.select_for_update().get(pk=operator.user.pk)  # two at once would both be the last that is allowed
        own = SavedView.objects.of_person(operator.user.pk)
        if own.count() >= MOST:
            raise Refusal(f"You have {MOST} views, the most that are kept. Delete one first.")
        if own.of_list(page.opts.label_lower).filter(name=name).exists():
            raise Refusal(f"You have a view “{name}” of this list already.")
        view = SavedView.objects.create(
            owner_number=operator.user.pk, owner_name=operator.name[:150], list=page.opts.label_lower, name=name,
            query=query, shared=shared, created_at=database_now(),
        )  # fmt: skip
        _record(operator, "save_view", view)
    return view


def _checked(name: str) -> str:
    name = steered(" ".join(name.split()))
    if not name or len(name) > LONGEST_NAME:
        raise Refusal(f"A view needs a name of 1 to {LONGEST_NAME} characters.")
    return name


def _record(operator: Operator, verb: str, view: SavedView, result: str = "done") -> None:
    whose = "for everybody" if view.shared else "own"
    detail = {"list": view.list, "whose": whose}  # without its filters: somebody may be searched for
    record(operator, verb, f"View {view.name}", reason="", result=result, detail=detail, subject_type=SUBJECT, subject_id=view.pk)  # fmt: skip


# -- Levers --------------------------------------------------------------------------------------------------
def _each(keys: list[int], operator: Operator, change: Any) -> LeverResult:
    """`change` each that is theirs, or for everybody where they may share; it returns a refusal in words."""
    changed, refused = 0, []
    for view in SavedView.objects.seen_by(operator.user).filter(pk__in=keys).order_by("pk"):
        if view.owner_number != operator.user.pk and not operator.user.has_perm(SHARE):
            refused.append(f"“{view.name}” is {view.owner_name}’s.")
        elif why := change(view):
            refused.append(why)
        else:
            changed += 1
    return LeverResult(changed, refused)


def _rename(keys: list[int], operator: Operator, reason: str, name: str) -> LeverResult:
    def change(view: SavedView) -> str:
        try:
            new = _checked(name)
            with transaction.atomic():
                if not SavedView.objects.filter(pk=view.pk, name=view.name).update(name=new):
                    return f"“{view.name}” has another name already."
                _record(operator, "rename_view", view, f"to “{new}”"[:200])
        except Refusal as refusal:
            return str(refusal)
        except IntegrityError:
            return f"There is a view “{name}” of this list already."
        return ""

    return _each(keys, operator, change)


def _delete(keys: list[int], operator: Operator, reason: str) -> LeverResult:
    def change(view: SavedView) -> str:
        with transaction.atomic():
            if not SavedView.objects.filter(pk=view.pk).delete()[0]:
                return f"“{view.name}” is gone already."
            _record(operator, "delete_view", view)
        return ""

    return _each(keys, operator, change)


view_lever = partial(Lever, nouns=("view", "views"), right="keep_savedview", least=0)
RENAME = view_lever(
    name="rename", verb="Rename", past="Renamed", icon="edit", keep="Keep its name", text_label="New name", text_help="At most 80 characters.",
    promise="It is called so above its list.", detail="Where it leads stays as it is.", act=_rename,
)  # fmt: skip
DELETE = view_lever(
    name="delete", verb="Delete", past="Deleted", icon="ban", keep="Keep it", harm=True,
    promise="It is gone from above its list.", detail="The list stays; the same filters can be saved again.", act=_delete,
)  # fmt: skip


# -- Its page ------------------------------------------------------------------------------------------------
@admin.register(SavedView)
class SavedViewAdmin(ReadOnlyAdmin[SavedView]):
    place = 75
    levers = (RENAME, DELETE)
    list_display = ["name_shown", "opens", "whose", "saved"]
    empty = ("No views yet", "Filter a list, then save the view above it: it stays there under its name.")
    saved = age_column("created_at", "Saved")

    def get_queryset(self, request: HttpRequest) -> models.QuerySet:
        return cast(Any, super().get_queryset(request)).seen_by(request.user)

    @admin.display(description="View")
    def name_shown(self, row: SavedView) -> str:
        return row.name

    @admin.display(description="Opens")
    def opens(self, row: SavedView) -> str:
        page = pages().get(row.list)
        return capfirst(str(page.opts.verbose_name_plural)) if page else "a list that is gone"

    @admin.display(description="Whose")
    def whose(self, row: SavedView) -> str:
        return f"for everybody, by {row.owner_name}" if row.shared else "yours"

    def detail(self, request: HttpRequest, row: SavedView) -> dict[str, object]:
        address = address_of(row)
        link = format_html('<a href="{}">{}</a>', address, self.opens(row)) if address else self.opens(row)
        return {"facts": [("Opens", link), ("Whose", self.whose(row)), ("Filters", row.query or "none")]}

    def get_urls(self) -> list[URLPattern]:
        save_view = path("save/", self.admin_site.admin_view(self.save_view), name="outbox_savedview_save")
        return [save_view, *super().get_urls()]

    def save_view(self, request: HttpRequest) -> HttpResponse:
        """POST: the filters of a list under a name; back to that list, whatever comes of it."""
        page = pages().get(request.POST.get("list", ""))
        if page is None:  # also of whatever is no POST
            raise Http404
        shared = request.POST.get("shared") == "1"
        user = request.user
        if not (page.has_view_permission(request) and user.has_perm(KEEP) and (not shared or user.has_perm(SHARE))):
            raise PermissionDenied
        query = request.POST.get("query", "")
        try:
            view = save(page, operator_of(user), request.POST.get("name", ""), query, shared=shared)
            self.message_user(request, f"Saved the view “{view.name}”.", messages.SUCCESS)
        except Refusal as refusal:
            self.message_user(request, str(refusal), messages.ERROR)
        url = reverse(f"admin:{page.opts.app_label}_{page.opts.model_name}_changelist")
        return HttpResponseRedirect(f"{url}?{known_part(page, query)}")
