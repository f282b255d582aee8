"""The admin site: home, search by any key, and the order of the sidebar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import BadRequest, FieldDoesNotExist, PermissionDenied
from django.db import DataError
from django.dispatch import Signal
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import URLPattern, URLResolver, path

from config import replica
from config.admin import lists
from config.admin.home import home
from config.admin.html import in_reading_order
from config.admin.pages import ReadOnlyAdmin
from config.admin.search import A_FEW, begun_on, by_kind, page_of
from config.database.clock import database_now
from config.database.tables import missing_apps
from config.environment.extensions import extensions, release_of
from config.partitions import configured, plan_for

FLOWING = ["outbox", "buffer", "throttler", "notifications", *settings.ADDED_APPS]
APP_ORDER = [*FLOWING, "auth", "axes"]
# A POST that was answered with 403; `request`, and `right` in words where the page names it.
post_refused = Signal()
View = Callable[..., HttpResponse]


def register_pages() -> None:
    """Import every page, which registers it at the site: for processes that serve pages or check them."""
    from config.admin import logins  # noqa: F401

    admin.autodiscover()


class SpillwayAdminSite(admin.AdminSite):
    """Stock Django admin whose index is the state of the platform."""

    site_header = site_title = "Spillway"
    index_title = "Home"
    site_url = None
    empty_value_display = "–"

    def get_urls(self) -> list[URLPattern | URLResolver]:
        own = [
            path("find/", self.admin_view(self.find_view), name="find"),
            path("partitions/", self.admin_view(self.partitions_view), name="partitions"),
        ]
        return [*own, *super().get_urls()]

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        """Every page is made by this: none reads U+0000 or writes backwards, and who POSTs without the right is written down."""
        return super().admin_view(_reporting_refusals(view), cacheable)

    def index(self, request: HttpRequest, extra_context: Mapping[str, object] | None = None) -> TemplateResponse:
        """Home. `?part=1` answers with what the refresh script lays over the page, and nothing around it."""
        request.current_app = self.name
        everywhere = self.each_context(request)
        everywhere |= {"title": self.index_title, "app_list": everywhere["available_apps"]}
        everywhere["extensions"] = [f"{app.verbose_name} ({release_of(app)})" for app in extensions()]
        if not self.may_look(request):
            return TemplateResponse(request, "admin/no_rights.html", everywhere)
        context = {**everywhere, **home(database_now()), "missing": missing_apps(), **(extra_context or {})}
        template = "admin/parts/home.html" if request.GET.get("part") else "admin/index.html"
        return TemplateResponse(request, template, context)

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """The apps in the sidebar, in this order: what fails first, what is set up once last."""
        apps_shown = super().get_app_list(request, app_label)
        for app in apps_shown:
            app["models"].sort(key=lambda model: (getattr(self._registry[model["model"]], "place", 50), model["name"]))
        last = len(APP_ORDER)
        return sorted(
            apps_shown, key=lambda app: APP_ORDER.index(app["app_label"]) if app["app_label"] in APP_ORDER else last
        )

    def autocomplete_view(self, request: HttpRequest) -> HttpResponse:
        """No page of ours completes anything: Django's view would answer some queries with an error of its own."""
        raise Http404

    def find_view(self, request: HttpRequest) -> HttpResponse:
        """Search by key: redirect to the one row that has it, or show a few of each kind; otherwise by the key's beginning.

        `beside` is the row whose page asks: what else has its key?
        """
        key = request.GET.get("q", "").strip()
        pages = [page for page in self.readable_pages(request) if type(page).find is not ReadOnlyAdmin.find]
        found = [(page, list(page.find(key))) for page in pages] if key else []
        place, why_not, listed, begun = lists.place_of(key), "", key, False
        if place and not any(rows for _page, rows in found):
            (keys, why_not), listed = lists.keys_at(place), ""
            found = [(page, [row for about in keys for row in page.find(about)]) for page in pages]
        if beside := request.GET.get("beside"):
            found = [(page, [row for row in rows if str(row.pk) != beside]) for page, rows in found]
        elif key and not place and not any(rows for _page, rows in found):
            begun = True
            found = [(page, page.begun(request, key, A_FEW + 1)) for page in begun_on(pages, key, request.user)]
        found = [(page, rows) for page, rows in found if rows]
        if len(found) == 1 and len(found[0][1]) == 1:
            page, (row,) = found[0]
            return HttpResponseRedirect(page_of(page, row))
        context = {
            **self.each_context(request),
            "title": "Search",
            "searched": key,
            "begun": begun,
            "kinds": by_kind(request, found, listed),
            "places": [str(page.opts.verbose_name_plural) for page in pages],
            "partition": f"{place.topic}/{place.partition}" if place else "",
            "why_not": why_not,
            "now": database_now(),
        }
        return TemplateResponse(request, "admin/find.html", context)

    def partitions_view(self, request: HttpRequest) -> HttpResponse:
        """What the next rotation will do and why; a job does it, this page only shows it."""
        if not self.may_look(request):
            raise PermissionDenied
        plans = [plan_for(spec) for spec in configured()]
        context = {**self.each_context(request), "title": "Partitions", "plans": plans, "now": database_now()}
        return TemplateResponse(request, "admin/partitions.html", context)

    def may_look(self, request: HttpRequest) -> bool:
        """Whether this user may see any page of a flow; the figures of home and the partitions are about all of them."""
        pages = (page for model, page in self._registry.items() if model._meta.app_label in FLOWING)
        return any(isinstance(page, ReadOnlyAdmin) and page.has_view_permission(request) for page in pages)

    def readable_pages(self, request: HttpRequest) -> Iterator[ReadOnlyAdmin]:
        """The read-only pages this user may see, in the order of the sidebar."""
        for app in self.get_app_list(request):
            for model in app["models"]:
                page = self._registry[model["model"]]
                if isinstance(page, ReadOnlyAdmin) and page.has_view_permission(request):
                    yield page


def without_nul(given: QueryDict) -> QueryDict:
    """What was sent, without U+0000: PostgreSQL fails at a text that holds it. Passwords stay for Django to refuse."""
    if not any("\x00" in text for name, texts in given.lists() for text in (name, *texts)):
        return given
    readable = QueryDict(mutable=True)
    for name, texts in given.lists():
        kept = texts if "password" in name else [text.replace("\x00", "") for text in texts]
        readable.setlist(name.replace("\x00", ""), kept)
    return readable


def _reporting_refusals(view: View) -> View:
    @wraps(view)
    def watched(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        for given in ("GET", "POST"):
            setattr(request, given, without_nul(getattr(request, given)))
        try:
            response = view(request, *args, **kwargs)
        except PermissionDenied as refused:
            _report(request, str(refused))  # the right in words, where the page names it
            raise
        except (OverflowError, DataError, FieldDoesNotExist) as error:
            # A number, a time or a text that no column takes, or no column: Django finds that out late.
            raise BadRequest from error
        replica.remember_write(request, response)
        if isinstance(response, TemplateResponse):
            response.add_post_render_callback(_put_in_reading_order)
        if response.status_code == 403:
            context = getattr(response, "context_data", None) or {}
            _report(request, context.get("right", ""))
        return response

    return watched


def _put_in_reading_order(response: HttpResponse) -> None:
    response.content = in_reading_order(response.content.decode())


def _report(request: HttpRequest, right: str = "") -> None:
    if request.method == "POST":
        post_refused.send(SpillwayAdminSite, request=request, right=right)
