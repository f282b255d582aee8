"""Middleware: a strict content security policy, a correlation id and a log line for each request, 503 without a database."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import BytesIO
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.sessions.exceptions import SessionInterrupted
from django.contrib.sessions.middleware import SessionMiddleware
from django.core.signals import request_finished
from django.db import DatabaseError, InterfaceError, OperationalError, ProgrammingError
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from config.database.retry import Remedy, needs_migrate, remedy_for
from config.telemetry.logs import begin, log

if TYPE_CHECKING:
    from axes.models import AccessBase

Answer = Callable[[HttpRequest], HttpResponse]

POLICY = "; ".join(
    [
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)
CORRELATION = "X-Correlation-ID"
PLAUSIBLE = re.compile(r"[\w.:-]{8,100}", re.ASCII)
PROBES = {"/healthz", "/readyz", "/metrics"}
RETRY_SECONDS = 10
MOST_DISCARDED = 8 * 1024 * 1024  # bytes
REASONS = {
    400: "The body ended early, or its chunks are none.",
    411: "This server reads no body without a Content-Length.",
    413: "The body is too large.",
}
# An address as proxies write it (RFC 7239, section 6): 192.0.2.1, 192.0.2.1:80, 2001:db8::1, [2001:db8::1], [2001:db8::1]:80.
NODE = re.compile(r"\[(.+)\](?::[\w.-]*)?|([\d.]+)(?::[\w.-]*)?|(.+)", re.ASCII)


class Middleware:
    """What stands between Django and the pages, as Django makes it."""

    def __init__(self, get_response: Answer) -> None:
        self.get_response = get_response


class ContentSecurityPolicy(Middleware):
    """Allow only our own scripts, styles and frames; a view may set a stricter policy."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if settings.DEBUG and response.status_code == 500:
            return response  # Django's technical page brings its own inline style and script
        response.headers.setdefault("Content-Security-Policy", POLICY)
        return response


class Correlation(Middleware):
    """Binds a correlation id to the lines of a request, the caller's when it has a plausible one, and gives it back.

    The first of ours: a request that another one refuses has its own id, not that of the request before in this thread.
    """

    def __call__(self, request: HttpRequest) -> HttpResponse:
        given = request.headers.get(CORRELATION, "")
        correlation_id = given if PLAUSIBLE.fullmatch(given) else str(uuid.uuid4())
        begin(correlation_id=correlation_id)
        response = self.get_response(request)
        response.headers[CORRELATION] = correlation_id
        return response


@receiver(request_finished)
def _end(**given: object) -> None:
    """What a server says in this thread before its next request, of one that it cannot read, is of none."""
    begin()


class ReadToTheEnd(Middleware):
    """Reads what nobody has read of a body before the answer leaves.

    A proxy whose connection ends while it still sends has no answer: nginx says 502 to who should hear 413.
    """

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        body = request.META["wsgi.input"] if request.META.get("wsgi.input_terminated") else request
        left = MOST_DISCARDED
        with suppress(Exception):  # cut off, or no body: the answer stands
            while left > 0 and (piece := body.read(64 * 1024)):
                left -= len(piece)
        return response


class RequestLog(Middleware):
    """Logs a request when it is done. The query string stays out of the log: search keys can be somebody's address."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        started = time.perf_counter()
        response = self.get_response(request)
        if request.path not in PROBES:
            self._log(request, response, time.perf_counter() - started)
        return response

    def _log(self, request: HttpRequest, response: HttpResponse, seconds: float) -> None:
        # Only if the session was read anyway: the log must not cost a query.
        user = request.__dict__.get("_cached_user")
        log.info(
            "request",
            method=request.method,
            path=_path_of(request),
            status=response.status_code,
            milliseconds=round(seconds * 1000, 1),
            user=getattr(user, "pk", None),
        )


def _path_of(request: HttpRequest) -> str:
    """The route where the path holds a text: the id of an object may be an address, and a link that sets a password opens an account."""
    match = request.resolver_match
    return f"/{match.route}" if match and any(isinstance(part, str) for part in match.kwargs.values()) else request.path


class BodyLength(Middleware):
    """Gives a body without a Content-Length (chunked, HTTP/2) its length: Django would take it for an empty one.

    Only a server that decodes such bodies says where they end (`wsgi.input_terminated`); behind any other one they are refused.
    """

    def __call__(self, request: HttpRequest) -> HttpResponse:
        refused = 0 if request.META.get("CONTENT_LENGTH") else _measure(request)
        if refused:
            reason = REASONS[refused]
            return HttpResponse(f"{reason}\n", status=refused, content_type="text/plain")
        return self.get_response(request)


def _measure(request: HttpRequest) -> int:
    """Read the body, up to what Django reads of any; the status that refuses it, or 0."""
    environ, most = request.META, settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    if not environ.get("wsgi.input_terminated"):
        return 411 if "HTTP_TRANSFER_ENCODING" in environ else 0
    try:
        body = environ["wsgi.input"].read(most + 1)
    except Exception:  # noqa: BLE001 (each server has errors of its own for chunks that are none)
        return 400
    if len(body) > most:
        return 413
    if body:
        environ["CONTENT_LENGTH"] = str(len(body))
        request._stream = BytesIO(body)
    return 0


class Sessions(SessionMiddleware):
    """Django's sessions, and 503 where the database is away or locked: at a page, or at its session, which every page saves.

    Django takes a session that cannot be saved for one that was deleted, and answers 400.
    """

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        try:
            return super().process_response(request, response)
        except (SessionInterrupted, DatabaseError, InterfaceError) as error:
            answer = self.process_exception(request, error)
            if answer is None:
                raise
            return answer

    def process_exception(self, request: HttpRequest, error: BaseException) -> HttpResponse | None:
        cause: BaseException | None = error
        while cause and type(cause).__module__.startswith("django.contrib.sessions"):
            cause = cause.__context__
        if not isinstance(cause, DatabaseError | InterfaceError) or not _is_away(cause):
            return None
        log.error("page_unavailable", path=_path_of(request), error=str(cause).strip(), kind=type(cause).__name__)
        headers = {"Retry-After": str(RETRY_SECONDS), "Cache-Control": "no-store"}
        return HttpResponse(render_to_string("503.html"), status=503, headers=headers)


def _is_away(error: DatabaseError | InterfaceError) -> bool:
    """Whether the same request may succeed in a moment; a table that is missing stays missing."""
    transient = isinstance(error, OperationalError | InterfaceError) or remedy_for(error) in (Remedy.RERUN, Remedy.WAIT)
    return transient and not (isinstance(error, ProgrammingError) or needs_migrate(error))


def client_address(request: HttpRequest) -> str | None:
    """Where a request comes from, for the limit on logins; None when nothing says it.

    Behind the trusted proxy it is the last address of X-Forwarded-For, the one that the proxy itself has added: everything
    before it is whatever the client wrote. What cannot be read there is nobody's: the proxy's own address is everybody's.
    """
    if settings.TRUST_PROXY:
        return _address_in(request.headers.get("X-Forwarded-For", "").rpartition(",")[2])
    return _address_in(request.META.get("REMOTE_ADDR", ""))


def _address_in(node: str) -> str | None:
    """One spelling for each address: without the port, the zone of a network card, and the IPv6 that wraps an IPv4."""
    match = NODE.fullmatch(node.strip().removeprefix('"').removesuffix('"'))
    try:
        address = ip_address(match[match.lastindex or 0].partition("%")[0] if match else "")
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)


def lockout_parameters(
    attempted: HttpRequest | AccessBase, credentials: Mapping[str, object] | None = None
) -> list[str | list[str]]:
    """What failed log-ins are counted by: those from nowhere by the name alone, or one person would lock out all others there.

    One at an identity provider has no name: by its address alone, or one person would lock out everybody.
    """
    if not isinstance(attempted, HttpRequest):
        address, name = attempted.ip_address, attempted.username
    else:
        address, name = client_address(attempted), (credentials or {}).get("username", attempted.POST.get("username"))
    if name is None:
        return ["ip_address"] if address else [["ip_address", "username", "user_agent"]]
    return ["ip_address", "username"] if address else ["username"]


def environment(request: HttpRequest) -> dict[str, object]:
    """Context processor: which installation this is, for the badge in the header, and how people log in to it."""
    return {
        "environment_name": settings.ENVIRONMENT_NAME,
        "provider_host": urlsplit(settings.OIDC_ISSUER).netloc,
        "password_login": settings.PASSWORD_LOGIN,
    }
