"""The HTTP API: the routers of API_ROUTERS under /v1, problem details, one OpenAPI document."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.module_loading import import_string
from ninja import NinjaAPI
from ninja.parser import Parser

from config.gate import Gate
from notifications.api.auth import BearerToken
from notifications.api.openapi import DocsPage, completed
from outbox.api.problems import problem_of

DESCRIPTION = """\
Every call carries Authorization: Bearer and a token; tokens are made in the admin or with create_token, and shown once.
Every POST carries an Idempotency-Key: after a timeout or a 503 send the same request again under the same key, and
what it asked for happens once. Refusals are application/problem+json (RFC 9457); their code is stable, texts are not.
Amounts are whole numbers in minor units. Times are UTC."""


class StrictParser(Parser):
    """Parses JSON through the decode gate: refuses what one of the databases could not store."""

    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        return Gate.of(dict[str, Any], settings.API_MAX_BYTES).decode(request.body)


class SpillwayAPI(NinjaAPI):
    """NinjaAPI with problem details and a complete document."""

    def get_openapi_schema(self, *args: Any, **kwargs: Any) -> Any:
        return completed(super().get_openapi_schema(*args, **kwargs))

    def on_exception(self, request: HttpRequest, exc: Any) -> HttpResponse:
        return problem_of(exc).response()


api = SpillwayAPI(
    title="Spillway",
    version="1",
    description=DESCRIPTION,
    docs=DocsPage(),
    docs_url="/api/docs",
    openapi_url="/api/openapi.json",
    parser=StrictParser(),
    auth=BearerToken(),  # unless a router names another
)
for path in settings.API_ROUTERS:
    api.add_router("/v1", import_string(path))
