"""Whatever a request holds, the answer is a page or a refusal: every page and form of the admin, one bad value at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client, override_settings
from django.urls import resolve

from outbox.channels import handlers as registry
from outbox.letters.models import DeadLetter
from tests.config.admin.conftest import list_of
from tests.config.admin.hostile import Reads, bodies, forms_of, page_behind, parameters_of_list, queries
from tests.screenshots.pages import PAGES
from tests.screenshots.seed import fill_all

pytestmark = pytest.mark.django_db
SETTINGS = {"SECURE_SSL_REDIRECT": False, "EMAIL_CHANNEL": "memory"}
WHOLE = ["deadletter", "user", "group"]  # whose lists are asked for everything that a list of Django's reads
ENDS_THE_VISIT = ("logout", "password_change")
FORM = "application/x-www-form-urlencoded"
REASON = "The customer\0 called, ticket 4471"
Visit = tuple[Client, dict[str, str]]


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """No transaction around a test: what a request breaks is broken as in the web process."""


@pytest.fixture(scope="module")
def visited(django_db_setup: None, django_db_blocker: Any) -> Iterator[Visit]:
    """Somebody who may do all, and where every page is."""
    with django_db_blocker.unblock(), override_settings(**SETTINGS):
        logging.disable()  # each refusal is a line
        registry.installed.clear()
        fill_all()
        pages = {name: url for name, shown in PAGES.items() if shown.status != 404 and (url := _place(shown.find))}
        client = Client()
        client.force_login(User.objects.get(username="ito"))
        yield client, pages
        logging.disable(logging.NOTSET)
        registry.installed.clear()
        call_command("flush", verbosity=0, interactive=False)


def _place(find: Callable[[], str]) -> str:
    """Not every database has a row in every state; the test of every page asks for all of them, once."""
    try:
        return find()
    except AssertionError:
        return ""


def broken(ask: Callable[..., Any], *asked: object, **more: object) -> str:
    """What is wrong with the answer; empty when it is one."""
    try:
        status = ask(*asked, **more).status_code
    except Exception as error:  # as the web process would answer with 500
        return f"{type(error).__name__}: {error}"[:200]
    return str(status) if status >= 500 else ""


def test_no_parameter_of_a_page_breaks_it(visited, monkeypatch):
    client, pages = visited
    reads, asked, wrong = Reads(monkeypatch), set(), []
    for url in pages.values():
        path, _, query = url.partition("?")
        page, given, kind = page_behind(path), parse_qsl(query), resolve(path).view_name
        reads.keys.clear()
        client.get(url)
        names = reads.keys | {key for key, _ in given}
        if page and kind.endswith("_changelist"):
            names |= {*parameters_of_list(page, page.opts.model_name in WHOLE), "before", "after"}
        for name in sorted(names - {found for at, found in asked if at == kind}):
            asked.add((kind, name))
            wrong += [
                f"{kind} {name} {what}: {problem}"
                for what, hostile in queries(given, name)
                if (problem := broken(client.get, f"{path}?{hostile}"))
            ]
    assert wrong == []


def test_no_field_of_a_form_breaks_it(visited):
    client, pages = visited
    asked, wrong = set(), []
    for url in pages.values():
        for action, fields in forms_of(client.get(url).content.decode()):
            target = action or url
            if any(word in target for word in ENDS_THE_VISIT):
                continue
            match = resolve(target.partition("?")[0])
            kind = (match.view_name, match.kwargs.get("name"))
            for field in {key for key, _ in fields} - {"csrfmiddlewaretoken"}:
                if (kind, field) in asked:
                    continue
                asked.add((kind, field))
                wrong += [
                    f"{kind} {field} {what}: {problem}"
                    for what, body in bodies(fields, field)
                    if (problem := broken(client.post, target, body, content_type=FORM))
                ]
    assert wrong == []


def test_a_nul_in_a_reason_is_left_out_and_the_deed_is_done(visited):
    client, _ = visited
    row = DeadLetter.objects.filter(status="open", source="ledger").latest("pk")
    answer = client.post(f"{list_of(DeadLetter)}lever/resolve/", {"id": row.pk, "reason": REASON})
    assert answer.status_code == 302
    row.refresh_from_db()
    assert (row.status, row.note) == ("resolved", REASON.replace("\0", ""))


@pytest.mark.parametrize("group", ["", "x", "9" * 30, "²", "\0"])
def test_a_group_that_is_none_shows_the_list(visited, group):
    client, _ = visited
    answer = client.get(list_of(DeadLetter), {"group__id__exact": group}, follow=True)
    assert answer.status_code == 200
