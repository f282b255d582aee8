"""The time zone of the viewer: UTC unless an account has chosen another; terminals and the API stay with UTC."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast
from zoneinfo import ZoneInfo, available_timezones

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme

from outbox.accounts.models import ViewerZone

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractUser

UTC = "UTC"
IN_SESSION = "zone"
PLACE = "/admin/"
APART = ("Etc/", "SystemV/", "posix/", "right/")  # no place where people live


@lru_cache(maxsize=1)
def zones() -> tuple[str, ...]:
    """The zones that can be chosen: UTC, then the places by name."""
    places = (name for name in available_timezones() if "/" in name and not name.startswith(APART))
    return (UTC, *sorted(places))


class InViewersZone:
    """Pages of the admin say times as their reader has chosen; the session knows it since the login, so no page asks for it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        chosen = request.session.get(IN_SESSION, UTC) if request.path.startswith(PLACE) else UTC
        with timezone.override(ZoneInfo(chosen if chosen in zones() else UTC)):
            return self.get_response(request)


def remember(sender: object, request: HttpRequest, user: AbstractUser, **_: object) -> None:
    """A receiver of `user_logged_in`: what the account has chosen."""
    chosen = ViewerZone.objects.filter(pk=user.pk).values_list("zone", flat=True).first()
    request.session[IN_SESSION] = chosen or UTC


def choose(request: HttpRequest) -> HttpResponse:
    """The page on which a person chooses; POST keeps it with the account, and leads back."""
    back = request.POST.get("next") or request.GET.get("next") or ""
    if not url_has_allowed_host_and_scheme(back, {request.get_host()}, request.is_secure()):
        back = reverse("admin:index")
    chosen, user = request.POST.get("zone", ""), cast(Any, request.user)
    if request.method == "POST" and chosen in zones():
        ViewerZone.objects.update_or_create(pk=user.pk, defaults={"zone": chosen})
        request.session[IN_SESSION] = chosen
        messages.success(request, f"Times are shown in {chosen}.")
        return HttpResponseRedirect(back)
    context = {
        **admin.site.each_context(request),
        "title": "Time zone of your pages",
        "zones": zones(),
        "chosen": timezone.get_current_timezone_name(),
        "fault": f"There is no zone “{chosen[:64]}”." if request.method == "POST" else "",
        "next": back,
    }
    return TemplateResponse(request, "admin/zone.html", context)
