"""The admin site: home, search by any key, and the order of the sidebar."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.apps import AdminConfig
from django.contrib.admin.utils import quote
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse

from config.clock import database_now
from config.home import home
from config.partitions import configured, plan_for
from config.window import ReadOnlyAdmin

SHELVES = ["outbox", "buffer", "throttler", "notifications", "auth"]
MOST_HITS = 20


class SpillwayAdminConfig(AdminConfig):
    """`django.contrib.admin` with our site; what the admin calls users and groups is "Access"."""

    default = False
    default_site = "config.admin.SpillwayAdminSite"

    def ready(self) -> None:
        super().ready()
        apps.get_app_config("auth").verbose_name = "Access"


class SpillwayAdminSite(admin.AdminSite):
    """Stock Django admin whose index is the state of the platform."""

    site_header = site_title = "Spillway"
    index_title = "Home"
    site_url = None
    empty_value_display = "–"

    def get_urls(self) -> list[Any]:
        own = [
            path("find/", self.admin_view(self.find_view), name="find"),
            path("partitions/", self.admin_view(self.partitions_view), name="partitions"),
        ]
        return [*own, *super().get_urls()]

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        """Home. `?part=1` answers with what the refresh script lays over the page, and nothing around it."""
        context = {
            **self.each_context(request),
            "title": self.index_title,
            "app_list": self.get_app_list(request),
            **home(database_now()),
            **(extra_context or {}),
        }
        request.current_app = self.name
        template = "admin/parts/home.html" if request.GET.get("part") else "admin/index.html"
        return TemplateResponse(request, template, context)

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """The shelves of the sidebar: what fails first, what is set up once last."""
        shelves = super().get_app_list(request, app_label)
        for shelf in shelves:
            shelf["models"].sort(
                key=lambda model: (getattr(self._registry[model["model"]], "place", 50), model["name"])
            )
        last = len(SHELVES)
        return sorted(
            shelves,
            key=lambda shelf: SHELVES.index(shelf["app_label"]) if shelf["app_label"] in SHELVES else last,
        )

    def find_view(self, request: HttpRequest) -> HttpResponse:
        """Straight to the one row that has this key; a page of them when there are more, or none."""
        # PostgreSQL refuses NUL in any text; nothing has it in its key.
        key = request.GET.get("q", "").replace("\x00", "").strip()
        windows = [window for window in self.windows(request) if type(window).find is not ReadOnlyAdmin.find]
        hits = [(window, row) for window in windows for row in window.find(key)] if key else []
        if len(hits) == 1:
            return HttpResponseRedirect(page_of(*hits[0]))
        context = {
            **self.each_context(request),
            "title": "Search",
            "searched": key,
            "hits": [
                (window.opts.verbose_name, row, page_of(window, row)) for window, row in hits[:MOST_HITS]
            ],
            "more": len(hits) > MOST_HITS,
            "places": [str(window.opts.verbose_name_plural) for window in windows],
            "now": database_now(),
        }
        return TemplateResponse(request, "admin/find.html", context)

    def partitions_view(self, request: HttpRequest) -> HttpResponse:
        """What the next rotation would do and why; it is done by a job, never from here."""
        plans = [plan_for(spec) for spec in configured()]
        context = {**self.each_context(request), "title": "Partitions", "plans": plans, "now": database_now()}
        return TemplateResponse(request, "admin/partitions.html", context)

    def windows(self, request: HttpRequest) -> Iterator[ReadOnlyAdmin]:
        """The read-only pages this user may see, in the order of the sidebar."""
        for shelf in self.get_app_list(request):
            for model in shelf["models"]:
                window = self._registry[model["model"]]
                if isinstance(window, ReadOnlyAdmin) and window.has_view_permission(request):
                    yield window


def page_of(window: ReadOnlyAdmin, row: Any) -> str:
    """The page of one row."""
    return reverse(f"admin:{window.opts.app_label}_{window.opts.model_name}_change", args=[quote(row.pk)])
