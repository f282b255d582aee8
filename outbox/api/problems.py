"""Every refusal of the API as RFC 9457 problem details, never a traceback, never HTML; and what its routes declare."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from django.conf import settings
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.db import DatabaseError, InterfaceError
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from ninja import Header, Router, Schema
from ninja.errors import AuthenticationError, HttpError, ValidationError
from pydantic import ConfigDict, Field

from config.database.retry import Remedy, remedy_for
from config.gate import InvalidRecord
from config.middleware import Answer as GetResponse
from config.payload import as_json
from config.telemetry.logs import log
from config.telemetry.redaction import trace_of

CONTENT_TYPE = "application/problem+json"
PREFIX = "/v1/"
OURS = "Value error, "  # what pydantic puts before the words of our own checks
RETRY_UNAVAILABLE, RETRY_IN_PROGRESS = 2, 1  # seconds


class Kind(NamedTuple):
    """A kind of problem: its status, its title, and what the caller can do about it."""

    status: int
    title: str
    remedy: str


KINDS = {
    "malformed": Kind(400, "The request cannot be read", "Send a JSON object in UTF-8."),
    "idempotency_key": Kind(
        400, "The Idempotency-Key is missing or not usable",
        "Send 1 to 200 visible ASCII characters, a new key for every change you want.",
    ),
    "unauthorized": Kind(401, "No valid token", "Send Authorization: Bearer with a token that is not revoked."),
    "token_expired": Kind(401, "The token has expired", "Send a new token."),
    "forbidden": Kind(403, "The token is not for this", "Use a token made for this route."),
    "not_found": Kind(404, "There is nothing here", "Check the path and the id."),
    "method_not_allowed": Kind(405, "The method is not allowed", "The header Allow names those that are."),
    "illegal_transition": Kind(
        409, "The order's state does not allow it", "Read the order; nothing was changed by this request.",
    ),
    "in_progress": Kind(
        409, "A request with this Idempotency-Key is in progress", "Send the same request again after Retry-After.",
    ),
    "length_required": Kind(
        411, "The length of the body is missing", "Send a Content-Length; the server behind this address reads no chunked body.",
    ),
    "too_large": Kind(413, "The body is too large", "The limit is API_MAX_BYTES."),
    "not_json": Kind(
        415, "The body is not JSON", "Send JSON, with Content-Type: application/json; forms and plain text are not read.",
    ),
    "invalid": Kind(422, "A value is not valid", "errors names each value and what is wrong with it."),
    "key_reused": Kind(
        422, "The Idempotency-Key was used for another body", "Use a new key for another request.",
    ),
    "rate_limited": Kind(429, "Too many requests", "Wait for Retry-After seconds."),
    "internal": Kind(
        500, "Something is wrong on our side", "Nothing was changed. Tell us the X-Correlation-ID of the answer.",
    ),
    "unavailable": Kind(
        503, "Not possible at the moment",
        "Send the same request with the same Idempotency-Key again: whether the change was made is decided then.",
    ),
}  # fmt: skip
BY_STATUS = {400: "malformed", 401: "unauthorized", 403: "forbidden", 404: "not_found",
             405: "method_not_allowed", 411: "length_required", 413: "too_large", 415: "not_json", 422: "invalid", 429: "rate_limited", 503: "unavailable"}  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """A status and a body, as stored under an Idempotency-Key."""

    status: int
    body: str
    replayed: bool = False

    def response(self, headers: Mapping[str, str] | None = None) -> HttpResponse:
        kind = "application/json" if self.status < 400 else CONTENT_TYPE
        response = HttpResponse(self.body, status=self.status, content_type=kind, headers=headers)
        response.headers["Cache-Control"] = "no-store"
        if self.replayed:
            response.headers["Idempotency-Replayed"] = "true"
        return response


class Problem(Exception):
    """A refusal, raised before anything was written."""

    def __init__(
        self,
        code: str,
        detail: str = "",
        *,
        errors: Sequence[Mapping[str, str]] = (),
        retry_after: float = 0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(code)
        self.code, self.detail, self.errors = code, detail, errors
        self.headers = dict(headers or {})
        if retry_after:
            self.headers["Retry-After"] = str(math.ceil(retry_after))

    def answer(self) -> Answer:
        status, title, remedy = KINDS[self.code]
        body = {
            "type": f"/api/docs#{self.code}",
            "title": title,
            "status": status,
            "code": self.code,
            "detail": self.detail or remedy,
        }
        if self.errors:
            body["errors"] = list(self.errors)
        return Answer(status, as_json(body))

    def response(self) -> HttpResponse:
        return self.answer().response(self.headers)


def problem_of(error: Exception) -> Problem:
    """The problem that the caller is shown for an exception."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, ValidationError):
        return _invalid(error.errors)
    if isinstance(error, AuthenticationError):
        return Problem("unauthorized", headers={"WWW-Authenticate": "Bearer"})
    if isinstance(error, HttpError):
        return _of_status(error)
    if isinstance(error, Http404):
        return Problem("not_found")
    if isinstance(error, RequestDataTooBig):
        return Problem("too_large")
    if isinstance(error, SuspiciousOperation):
        return Problem("malformed")
    if isinstance(error, UnreadablePostError):
        return Problem("malformed", "The connection ended before the body did.")
    return _of_ours(error)


def unreadable(request: HttpRequest, refused: InvalidRecord) -> Problem:
    """Of a body that is no message: first of all that it is too long, or was not sent as JSON."""
    if refused.reason == "too_large":
        return Problem("too_large")
    if request.content_type not in ("", "application/json") and not str(request.content_type).endswith("+json"):
        return Problem("not_json")
    return Problem("invalid" if refused.reason == "wrong_field" else "malformed", f"{refused}.")


def _of_ours(error: Exception) -> Problem:
    if isinstance(error, DatabaseError | InterfaceError) and remedy_for(error) in (Remedy.RERUN, Remedy.WAIT):
        log.warning("api_database_unavailable", error=type(error).__name__)
        return Problem(
            "unavailable", f"The database does not answer. {KINDS['unavailable'].remedy}", retry_after=RETRY_UNAVAILABLE
        )
    log.error("api_failed", error=type(error).__name__, exception=trace_of(error))
    return Problem("internal")


def _of_status(error: HttpError) -> Problem:
    cause = error.__cause__ or error.__context__
    if isinstance(cause, Problem):
        return cause
    return Problem(BY_STATUS.get(error.status_code, "internal"), error.message)


def _invalid(errors: Sequence[Mapping[str, Any]]) -> Problem:
    """Names the place of each wrong value, not the value: it may be somebody's address."""
    named = [{"where": _place(error["loc"]), "what": error["msg"].removeprefix(OURS)} for error in errors]
    keys = [error for error in named if error["where"].lower().replace("_", "-") == "header.idempotency-key"]
    return Problem("idempotency_key", errors=keys) if keys else Problem("invalid", errors=named)


def _place(loc: Sequence[object]) -> str:
    """`body.total_amount`: as the caller wrote it, without the name that the body has in our function."""
    parts = [*loc[:1], *loc[2:]] if loc[:1] == ("body",) else loc
    return ".".join(map(str, parts))


class ProblemDetails:
    """Middleware: answers Django's own refusals under /v1/ (host, method, path, size) as problem details."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not f"{request.path_info}/".startswith(PREFIX):
            return self.get_response(request)
        length = request.META.get("CONTENT_LENGTH") or "0"
        if not length.isdecimal() or int(length) > settings.API_MAX_BYTES:
            return Problem("too_large").response()
        response = self.get_response(request)
        kind = response.headers.get("Content-Type", "")
        if response.status_code < 400 or kind.startswith(CONTENT_TYPE):
            return response
        problem = Problem(BY_STATUS.get(response.status_code, "internal")).response()
        for name, value in response.headers.items():
            if name not in ("Content-Type", "Content-Length"):
                problem.headers[name] = value
        return problem


# -- What routes declare, and the OpenAPI document says of each: the key, bodies that allow no unknown field, the refusals ------
READ_REFUSALS = frozenset({400, 401, 403, 404, 411, 413, 422, 429, 500, 503})
WRITE_REFUSALS = READ_REFUSALS | {409, 415}
OF_KEYS = {"idempotency_key", "key_reused", "in_progress"}  # codes of routes that take an Idempotency-Key

Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="A key of your own for this change. The same request under it gets the same answer for "
        "OUTBOX_IDEMPOTENCY_DAYS; another body is refused with 422.",
        examples=["b1f7c2d0-5a43-4e0e-9f63-0c1d5b7f8a21"],
    ),
]


class CustomerRouter(Router):
    """A router whose routes admit tokens that send for a customer, too; those of any other refuse them."""


class Input(Schema):
    """Base of request bodies: unknown fields are refused, so that a misspelt one is not ignored."""

    model_config = ConfigDict(extra="forbid")


class WrongValue(Schema):
    where: str = Field(examples=["body.total_amount"])
    what: str = Field(examples=["Input should be greater than or equal to 1"])
    reason: str | None = Field(
        None,
        description="Of a message: the reason of the letter that a record of it would be.",
        examples=["wrong_field"],
    )


class ProblemOut(Schema):
    """RFC 9457."""

    type: str = Field(examples=["/api/docs#illegal_transition"])
    title: str = Field(examples=["The order's state does not allow it"])
    status: int = Field(examples=[409])
    code: str = Field(description="Stable; texts are not.", examples=["illegal_transition"])
    detail: str = Field(examples=["the order is cancelled: pay is not possible"])
    errors: list[WrongValue] | None = None
