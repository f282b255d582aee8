"""The provider is asked again while somebody works: at least every OIDC_RECHECK_SECONDS, or nothing more is shown."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, cast

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, logout
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from config.database.clock import database_now
from config.openid import ProviderUnavailable, SignInRefused
from config.openid.id_token import verified
from config.openid.provider import provider
from config.telemetry.logs import log
from outbox.sign_in import views
from outbox.sign_in.backends import told
from outbox.sign_in.models import SignIn
from outbox.sign_in.people import admit, record_refusal, username_of

EARLY = 2 / 3  # of the time: a provider that is away for the rest of it is not noticed
AGAIN = timedelta(seconds=3)  # after which a provider that did not answer is asked again
PASSED = ("oidc_authentication_init", "oidc_authentication_callback", "sign_out")  # show nothing, and lead out or in


class Recheck:
    """Behind the session: whoever came from the provider is still who they were, with the roles that they have now."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        begun = request.session.get(BACKEND_SESSION_KEY) == views.BACKEND and request.user.is_authenticated
        if not begun or request.path in map(reverse, PASSED):
            return self.get_response(request)
        person, key = cast(User, request.user), request.session.get(views.SESSION_KEY, "")
        try:
            if not _still_in(key, person, database_now()):
                logout(request)
                return HttpResponseRedirect(reverse("admin:login"))
        except ProviderUnavailable as error:
            return views.unavailable(request, error)
        except SignInRefused as refusal:
            with transaction.atomic():
                SignIn.objects.filter(pk=key).delete()
                record_refusal(refusal, {}, person)
            logout(request)
            return views.refused(request, refusal)
        return self.get_response(request)


def _still_in(key: str, person: User, now: datetime) -> bool:
    """Whether the log-in stands; False where it was ended. Raises SignInRefused, and ProviderUnavailable after the time."""
    sign_in = SignIn.objects.filter(pk=key, person=person.pk).first()
    if sign_in is None:
        return False
    most = timedelta(seconds=settings.OIDC_RECHECK_SECONDS)
    if now - sign_in.checked_at < most * EARLY:
        return True
    if SignIn.objects.lease(sign_in, now):
        try:
            _ask_again(sign_in, person, now)
            return True
        except ProviderUnavailable as error:
            log.warning("provider_unavailable", error=str(error))
            SignIn.objects.leased(key, now).update(leased_until=now + AGAIN)
            why = error
    else:  # another request asks, or has just asked
        sign_in = SignIn.objects.filter(pk=key).first() or sign_in
        why = ProviderUnavailable("OIDC_ISSUER: the provider is being asked")
    if now - sign_in.checked_at < most:
        return True
    raise why


def _ask_again(sign_in: SignIn, person: User, now: datetime) -> None:
    """The account gets the roles of now, the log-in tokens for the next time. Raises SignInRefused or ProviderUnavailable."""
    tokens = sign_in.tokens
    claims: dict[str, Any] = {}
    if refresh_token := tokens.get("refresh_token"):
        tokens |= provider().tokens({"grant_type": "refresh_token", "refresh_token": refresh_token})
        SignIn.objects.keep(sign_in.pk, tokens, now)
        if tokens.get("id_token") != sign_in.tokens.get("id_token"):
            claims = verified(tokens["id_token"], provider())
    claims = told(tokens.get("access_token"), claims)
    if username_of(claims["sub"]) != person.get_username():
        raise SignInRefused("the provider answers about somebody else (sub)")
    with transaction.atomic():
        if not SignIn.objects.checked(sign_in.pk, now):  # somebody else has asked since, and may have been refused
            raise ProviderUnavailable("OIDC_ISSUER: the answer came too late to count")
        admit(claims)
