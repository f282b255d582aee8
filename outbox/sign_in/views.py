"""Pages of the log-in at the provider: there, back, who is refused and why, and out again."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import add_never_cache_headers
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST
from mozilla_django_oidc.views import OIDCAuthenticationCallbackView, OIDCAuthenticationRequestView

from config.openid import ProviderUnavailable, SignInRefused
from config.openid.provider import ERROR_CODE, provider
from config.telemetry.logs import log
from outbox.sign_in.models import SignIn
from outbox.sign_in.people import record_refusal

BACKEND = "outbox.sign_in.backends.OpenIDBackend"
SESSION_KEY = "sign_in"  # the key of a SignIn
STATES = "oidc_states"  # the library's: states of log-ins that this browser has begun, with nonce and verifier
RETRY_SECONDS = 10
BEGUN_ELSEWHERE = SignInRefused("it was begun in another browser, or too long ago: begin again")


# -- There and back ------------------------------------------------------------------------------------------
class Begin(OIDCAuthenticationRequestView):
    """Sends a browser to the provider with a state, a nonce and the hash of a verifier."""

    @staticmethod
    def get_settings(attr: str, *args: Any) -> Any:
        if attr == "OIDC_OP_AUTHORIZATION_ENDPOINT":
            return provider().entrance()
        ours = {
            "OIDC_RP_CLIENT_ID": settings.OIDC_CLIENT_ID,
            "OIDC_RP_SCOPES": settings.OIDC_SCOPES,
            "OIDC_USE_PKCE": True,
        }
        return ours[attr] if attr in ours else OIDCAuthenticationRequestView.get_settings(attr, *args)

    def get_extra_params(self, request: HttpRequest) -> dict[str, str]:
        """Whoever was refused may be somebody else as well: then the provider asks again who it is."""
        return {"prompt": "login"} if "again" in request.GET else {}


class Callback(OIDCAuthenticationCallbackView):
    """A browser comes back; a state is good for once."""

    def get(self, request: HttpRequest) -> HttpResponse:
        states, state = request.session.get(STATES) or {}, request.GET.get("state")
        if state not in states or request.GET.get("iss", settings.OIDC_ISSUER) != settings.OIDC_ISSUER:
            return refused(request, BEGUN_ELSEWHERE)  # also a code of another provider (RFC 9207)
        if code := request.GET.get("error"):
            del states[state]
            request.session.modified = True
            said = f" ({code})" if ERROR_CODE.fullmatch(code) else ""
            refusal = SignInRefused(f"the provider did not let anybody in{said}")
            with transaction.atomic():
                record_refusal(refusal, {})
            return refused(request, refusal)
        answer: HttpResponse = super().get(request)
        return answer

    def login_failure(self) -> HttpResponse:
        return refused(self.request, self.request.__dict__.get("sign_in_refusal", BEGUN_ELSEWHERE))

    def login_success(self) -> HttpResponse:
        session, person = self.request.session, cast(User, self.user)
        before, known = session.get(SESSION_KEY), self.request.__dict__
        answer: HttpResponse = super().login_success()
        SignIn.objects.filter(pk=before).delete()
        self.request.session[SESSION_KEY] = SignIn.begin(
            person.pk, known["sign_in_tokens"], known["sign_in_asked_at"]
        ).pk
        return answer


@never_cache
@require_GET
def log_in(request: HttpRequest) -> HttpResponse:
    """To the provider."""
    return _asking(request, Begin)


@never_cache
@require_GET
def callback(request: HttpRequest) -> HttpResponse:
    """From the provider."""
    return _asking(request, Callback)


def _asking(request: HttpRequest, view: Any) -> HttpResponse:
    try:
        answer: HttpResponse = view.as_view()(request)
    except ProviderUnavailable as error:
        log.warning("provider_unavailable", error=str(error))
        return unavailable(request, error)
    return answer


# -- Out -----------------------------------------------------------------------------------------------------
@never_cache
@require_POST
def log_out(request: HttpRequest) -> HttpResponse:
    """Here, and then at the provider.

    By a page that leads there: our policy lets no form end at another site, by a redirect either.
    """
    sign_in = SignIn.objects.filter(pk=request.session.get(SESSION_KEY)).first()
    answer: HttpResponse = admin.site.logout(request)
    if sign_in is None:
        return answer
    id_token = sign_in.tokens.get("id_token", "")
    sign_in.delete()
    try:
        there = provider().endpoint("end_session_endpoint")
    except ProviderUnavailable:
        there = ""
    if not there:
        return answer
    back = request.build_absolute_uri(reverse("admin:index"))
    query = {"id_token_hint": id_token, "client_id": settings.OIDC_CLIENT_ID, "post_logout_redirect_uri": back}
    return _page(request, "out", address=f"{there}{'&' if '?' in there else '?'}{urlencode(query)}")


# -- Pages ---------------------------------------------------------------------------------------------------
def refused(request: HttpRequest, refusal: SignInRefused) -> HttpResponse:
    """403: why, and who can help."""
    return _page(request, "refused", 403, why=str(refusal))


def unavailable(request: HttpRequest, error: ProviderUnavailable) -> HttpResponse:
    """503: nobody can say now who this is."""
    answer = _page(request, "unavailable", 503)
    answer.headers["Retry-After"] = str(RETRY_SECONDS)
    return answer


def _page(request: HttpRequest, what: str, status: int = 200, **more: str) -> HttpResponse:
    titles = {"out": "Logged out", "refused": "Not let in", "unavailable": "Not now"}
    context = {**admin.site.each_context(request), "title": titles[what], "what": what, **more}
    answer = render(request, "admin/sign_in.html", context, status=status)
    add_never_cache_headers(answer)
    return answer
