"""The OpenAPI document is complete, and its page needs nobody else's script."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html import unescape

import pytest
from django.contrib.admin import site
from django.test import Client

from notifications.api.site import api, operations
from notifications.api.tokens import issue
from notifications.orders.models import Order
from outbox.api.problems import BY_STATUS, KINDS, OF_KEYS
from outbox.intake.envelope import READABLE
from tests.notifications.conftest import ME, Caller
from tests.tree import ROOT, read


@pytest.fixture(scope="module")
def schema():
    return api.get_openapi_schema(path_params={})


def test_every_route_of_the_contract_is_described(schema):
    routes = {operation["x-place"] for operation in operations(schema)}
    assert routes >= {
        "POST /v1/orders",
        "GET /v1/orders",
        "GET /v1/orders/{order_id}",
        "POST /v1/orders/{order_id}/pay",
        "POST /v1/orders/{order_id}/cancel",
        "POST /v1/orders/{order_id}/refund",
        "POST /v1/messages",
        "GET /v1/messages/{message_id}",
        "POST /v1/transactional",
    }


def test_every_operation_has_words_examples_and_its_refusals(schema):
    for operation in operations(schema):
        assert operation["summary"]
        assert operation["description"]
        assert operation["operationId"]
        assert operation["security"]
        good = [answer for status, answer in operation["responses"].items() if int(status) < 400]
        assert good[0]["content"]["application/json"]["example"]
        refusals = {int(status) for status in operation["responses"]} - {200, 201, 202}
        assert refusals >= {400, 401, 403, 411, 413, 422, 429, 500, 503}
        writes = operation["x-place"].startswith("POST")
        assert (409 in refusals) is (415 in refusals) is writes
        assert ("Idempotency-Key" in {one["name"] for one in operation["parameters"]}) is writes
        for status in refusals:
            content = operation["responses"][str(status)]["content"]
            assert list(content) == ["application/problem+json"]
            examples = content["application/problem+json"]["examples"]
            assert {example["value"]["status"] for example in examples.values()} == {status}
            assert writes or not OF_KEYS & examples.keys()


def test_every_schema_describes_what_is_in_it(schema):
    for name, found in schema["components"]["schemas"].items():
        for field, part in found["properties"].items():
            described = {"examples", "$ref", "items", "anyOf", "allOf"} & part.keys()
            assert described, f"{name}.{field} has no example"


def test_the_schema_knows_the_states_of_orders(schema):
    status = schema["components"]["schemas"]["OrderOut"]["properties"]["status"]
    assert set(status["enum"]) == set(Order.Status.values)


def test_every_status_has_a_kind():
    assert {KINDS[code].status for code in BY_STATUS.values()} == set(BY_STATUS)


def test_examples_are_accepted_by_the_api_itself(schema, caller):
    body = schema["paths"]["/v1/orders"]["post"]["requestBody"]["content"]["application/json"]["example"]
    assert caller.post("/v1/orders", body).status_code == 201
    body = schema["paths"]["/v1/messages"]["post"]["requestBody"]["content"]["application/json"]["example"]
    assert Caller(issue("billing", ME, channels="email")[1]).post("/v1/messages", body).status_code == 202


def test_an_envelope_has_the_fields_that_the_intake_reads(schema):
    envelope = schema["components"]["schemas"]["NewMessages"]["properties"]["messages"]["items"]
    assert set(envelope["properties"]) == {*READABLE, "payload"}


def test_the_document_is_served(client, settings):
    settings.SECURE_SSL_REDIRECT = False
    answer = Client().get("/api/openapi.json")
    assert answer.status_code == 200
    assert json.loads(answer.content)["openapi"].startswith("3.")


def test_the_page_lists_everything_and_loads_nothing_from_elsewhere(schema):
    answer = Client().get("/api/docs")
    html = answer.content.decode()
    assert answer.status_code == 200
    assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
    for operation in operations(schema):
        assert f'id="{operation["operationId"]}"' in html
    for code in KINDS:
        assert f'id="{code}"' in html
    loaded = re.findall(r"(?:src|href)=\"([^\"]+)\"", html)
    assert loaded
    assert not [url for url in loaded if re.match(r"(?:[a-z]+:)?//", url)]
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bon\w+=|\bstyle=", html)


def test_each_link_of_the_page_leads_somewhere_and_no_word_pushes_a_phone(schema, client):
    html = client.get("/api/docs").content.decode()
    for link in set(re.findall(r'<a [^>]*href="([^"]+)"', html)):
        path, _, place = link.partition("#")
        assert not path or client.get(path).status_code in (200, 302), link  # home asks who it is
        assert not place or html.count(f' id="{place}"') == 1, link
    tables = re.findall(r"<table.*?</table>", html, re.DOTALL)
    assert all('class="sw-rows"' in table and "<td>" not in table for table in tables), "they are stacked on a phone"
    assert "overflow-wrap: anywhere" in read(ROOT / "templates" / "static" / "spillway" / "api.css")


def test_the_handbook_names_every_route_and_every_code(schema):
    page = read(ROOT / "docs" / "api.md")
    for operation in operations(schema):
        assert re.sub(r"{\w+_id}", "{id}", operation["x-place"]).split()[1] in page
    for code, kind in KINDS.items():
        assert re.search(rf"^\| {kind.status} \| `{code}` \|", page, re.MULTILINE), code


@pytest.mark.processes
def test_a_worker_loads_neither_the_api_nor_the_pages_of_the_admin():
    """ninja and pydantic would take 14 MB of every process and a third of its start, the pages 12 MB and a tenth.
    The check of the pages has them before it looks."""
    code = (
        "import sys, django; django.setup(); import buffer.workers, outbox.workers.start\n"
        "print(*(name for name in ('ninja', 'config.admin.site', 'outbox.admin') if name in sys.modules))\n"
        "from django.core.checks import run_checks; from django.contrib.admin import site\n"
        "run_checks(tags=['admin']); print(len(site._registry))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.splitlines() == ["", str(len(site._registry))]


def test_the_page_shows_each_call_as_a_shell_takes_it(client):
    """The shell that runs it has a `curl` of its own, which says what it was given."""
    html = client.get("/api/docs").content.decode()
    calls = [unescape(found) for found in re.findall(r'aria-label="The call with curl">(.*?)</pre>', html, re.DOTALL)]
    assert len(calls) == len(list(operations(api.get_openapi_schema(path_params={}))))
    given = []
    for call in calls:
        script = f"curl() {{ printf '%s\\0' \"$@\"; }}\nuuidgen() {{ echo k; }}\nSPILLWAY=http://x TOKEN=t\n{call}\n"
        words = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split("\0")
        given.append(words)
        assert "Authorization: Bearer t" in words
        assert "{" not in words[3], "a path without its values"
    (create,) = [words for words in given if words[3] == "http://x/v1/orders" and "POST" in words]
    assert "Idempotency-Key: k" in create
    assert json.loads(create[create.index("-d") + 1])["currency"] == "EUR"
