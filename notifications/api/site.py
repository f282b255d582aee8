"""The HTTP API: the routers of API_ROUTERS under /v1, problem details, one OpenAPI document with its page."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.module_loading import import_string
from ninja import NinjaAPI, Router
from ninja.constants import NOT_SET
from ninja.openapi.docs import DocsBase
from ninja.parser import Parser

from config.gate import Gate, InvalidRecord
from notifications.api.auth import BearerToken, ServiceToken
from outbox.api.problems import CONTENT_TYPE, KINDS, OF_KEYS, CustomerRouter, Problem, problem_of, unreadable

Json = dict[str, Any]

DESCRIPTION = """\
Every call carries Authorization: Bearer and a token; tokens are made in the admin or with create_token, and shown once.
Every POST carries an Idempotency-Key: after a timeout or a 503 send the same request again under the same key, and
what it asked for happens once. Refusals are application/problem+json (RFC 9457); their code is stable, texts are not.
Amounts are whole numbers in minor units. Times are UTC."""


class StrictParser(Parser):
    """Parses JSON through the decode gate: refuses what one of the databases could not store."""

    def parse_body(self, request: HttpRequest) -> Json:
        try:
            return Gate.of(dict[str, Any], settings.API_MAX_BYTES).decode(request.body)
        except InvalidRecord as refused:
            raise unreadable(request, refused) from None


class SpillwayAPI(NinjaAPI):
    """NinjaAPI with problem details and a complete document."""

    def get_openapi_schema(self, *args: Any, **kwargs: Any) -> Any:
        return completed(super().get_openapi_schema(*args, **kwargs))

    def on_exception(self, request: HttpRequest, exc: Any) -> HttpResponse:
        return problem_of(exc).response()


class DocsPage(DocsBase):
    """/api/docs: the document as plain HTML; ninja's own pages load scripts from other hosts."""

    def render_page(self, request: HttpRequest, api: NinjaAPI, **kwargs: object) -> HttpResponse:
        schema = api.get_openapi_schema(path_params=kwargs)
        context = {
            "title": schema["info"]["title"],
            "description": schema["info"]["description"],
            "operations": [_shown(operation, schema) for operation in operations(schema)],
            "kinds": KINDS.items(),
            "openapi_url": self.get_openapi_url(api, kwargs),
        }
        return TemplateResponse(request, "api/docs.html", context)


api = SpillwayAPI(
    title="Spillway",
    version="1",
    description=DESCRIPTION,
    docs=DocsPage(),
    docs_url="/api/docs",
    openapi_url="/api/openapi.json",
    parser=StrictParser(),
    auth=ServiceToken(),  # unless a router is for customers, or names another
)


def admitting(router: Router) -> Router:
    """The router, with whom it admits: customers, too, where it is for them; whatever it names itself stays."""
    if isinstance(router, CustomerRouter) and router.auth is NOT_SET:
        router.auth = BearerToken()
    return router


for path in settings.API_ROUTERS:
    api.add_router("/v1", admitting(import_string(path)))


# -- The OpenAPI document ----------------------------------------------------------------------------------
METHODS = ("post", "get", "put", "patch", "delete")


def completed(schema: Json) -> Json:
    """The schema with the type, headers and an example of every refusal, and an example of every answer."""
    for operation in operations(schema):
        for parameter in operation["parameters"]:
            parameter.pop("examples", None)  # they stand in its schema; here OpenAPI wants another form
        if "requestBody" in operation:
            body = operation["requestBody"]["content"]["application/json"]
            body["example"] = example_of(body["schema"], schema)
        ordered = sorted(operation["responses"].items(), key=lambda pair: int(pair[0]))
        operation["responses"] = {str(status): response for status, response in ordered}
        keyed = any(parameter["name"] == "Idempotency-Key" for parameter in operation["parameters"])
        codes = KINDS.keys() if keyed else KINDS.keys() - OF_KEYS
        for status, response in operation["responses"].items():
            content = response["content"]["application/json"]
            if int(status) < 400:
                content["example"] = example_of(content["schema"], schema)
                response["description"] = {201: "Created", 202: "Accepted"}.get(int(status), "OK")
            else:
                _refusal(response, content, int(status), codes)
    return schema


def _refusal(response: Json, content: Json, status: int, codes: Collection[str]) -> None:
    kinds = {code: kind for code, kind in KINDS.items() if kind.status == status and code in codes}
    content["examples"] = {
        code: {"summary": kind.title, "value": json.loads(Problem(code).answer().body)} for code, kind in kinds.items()
    }
    response["description"] = "; or: ".join(kind.title for kind in kinds.values())
    response["content"] = {CONTENT_TYPE: content}
    if status in (409, 429, 503):
        response["headers"] = {
            "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds; with 409 only while in progress."}
        }


def operations(schema: Json) -> Iterator[Json]:
    """Every operation of every path, with its method and path."""
    for path, item in schema["paths"].items():
        for method in METHODS:
            if method in item:
                operation = item[method]
                operation.setdefault("x-place", f"{method.upper()} {path}")
                yield operation


def example_of(schema: Json, whole: Json) -> object:
    """A value that the schema describes, from the examples of its parts."""
    if "$ref" in schema:
        return example_of(whole["components"]["schemas"][schema["$ref"].rpartition("/")[2]], whole)
    if "examples" in schema:
        return schema["examples"][0]
    if "anyOf" in schema:
        return example_of(schema["anyOf"][0], whole)
    if schema.get("type") == "array":
        return [example_of(schema["items"], whole)]
    return {name: example_of(part, whole) for name, part in schema.get("properties", {}).items()}


def _shown(operation: Json, schema: Json) -> Json:
    """One operation as the page shows it."""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    method, _, path = operation["x-place"].partition(" ")
    answers = [
        (status, response["description"], _pretty(next(iter(response["content"].values())).get("example")))
        for status, response in operation["responses"].items()
    ]
    return {
        **operation,
        "method": method,
        "path": path,
        "id": operation["operationId"],
        "body": _pretty(body["example"]) if body else "",
        "curl": _curl(method, path, operation, body["example"] if body else None),
        "fields": _fields(body["schema"], schema) if body else [],
        "good": [answer for answer in answers if int(answer[0]) < 400],
        "refusals": [answer[:2] for answer in answers if int(answer[0]) >= 400],
    }


def _curl(method: str, path: str, operation: Json, body: object) -> str:
    """The call in a shell, where $SPILLWAY is the address and $TOKEN the token."""
    for parameter in operation["parameters"]:
        if parameter["in"] == "path":
            (example, *_) = parameter["schema"].get("examples") or [f"${parameter['name'].upper()}"]
            path = path.replace(f"{{{parameter['name']}}}", str(example))
    lines = [f'curl -sS -X {method} "$SPILLWAY{path}"', '-H "Authorization: Bearer $TOKEN"']
    if method == "POST":
        lines.append('-H "Idempotency-Key: $(uuidgen)"')
    if body is not None:
        lines.append("-H 'Content-Type: application/json'")
        lines.append(f"-d {shlex.quote(json.dumps(body, ensure_ascii=False))}")
    return " \\\n  ".join(lines)


def _fields(schema: Json, whole: Json) -> list[tuple[str, str, str]]:
    """Name, type and description of each field of a body."""
    body = whole["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return [(name, part.get("type", ""), part.get("description", "")) for name, part in body["properties"].items()]


def _pretty(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) if value is not None else ""
