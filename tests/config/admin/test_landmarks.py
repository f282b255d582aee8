"""Each page, as a reader of the screen walks it: no two landmarks alike, and a name for every field."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from outbox.channels import handlers as registry
from tests.screenshots.others import fill_all
from tests.screenshots.pages import PAGES

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "sqlite", reason="the pages are the same: once is enough"),
]
VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr", "use"}
SECTIONS = {"article", "aside", "main", "nav", "section"}  # inside of them header and footer are no landmarks
ROLES = {"nav": "navigation", "main": "main", "aside": "complementary", "header": "banner", "footer": "contentinfo"}
LANDMARKS = {*ROLES.values(), "region", "search", "form"}
NAMELESS = {"hidden", "submit", "button", "image", "reset"}  # inputs that need no label


class Walk(HTMLParser):
    """What a page says to who does not see it."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str]]] = []
        self.landmarks: list[tuple[str, str]] = []
        self.labelled: set[str] = set()
        self.fields: list[tuple[str, bool]] = []
        self.texts: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._landmark(tag, given)
        if tag == "label" and given.get("for"):
            self.labelled.add(given["for"])
        shown = given.get("type") not in NAMELESS and given.get("class") != "hidden"  # Django's, for password managers
        if tag in ("select", "textarea") or (tag == "input" and shown):
            named = any(given.get(name) for name in ("aria-label", "aria-labelledby"))
            wrapped = any(outer == "label" for outer, _ in self.open)
            self.fields.append((given.get("id") or given.get("name", "?"), named or wrapped))
        if tag not in VOID:
            self.open.append((tag, given))

    def _landmark(self, tag: str, given: dict[str, str]) -> None:
        within = {outer for outer, _ in self.open} & SECTIONS
        name = given.get("aria-label") or given.get("aria-labelledby", "")
        role = given.get("role") or ("" if tag in ("header", "footer") and within else ROLES.get(tag, ""))
        role = role or {"section": "region", "form": "form"}.get(tag, "") if name else role
        if role in LANDMARKS:
            self.landmarks.append((role, name))

    def handle_endtag(self, tag: str) -> None:
        while any(outer == tag for outer, _ in self.open):
            if self.open.pop()[0] == tag:
                return

    def handle_data(self, data: str) -> None:
        for _, given in self.open:
            if "id" in given:
                self.texts[given["id"]] = self.texts.get(given["id"], "") + data

    def faults(self) -> list[str]:
        named = [(role, " ".join(self.texts.get(name, name).split())) for role, name in self.landmarks]
        twice = [f"{role} “{name}” {number} times" for (role, name), number in Counter(named).items() if number > 1]
        nameless = [f"no label: {key}" for key, named in self.fields if not named and key not in self.labelled]
        return twice + nameless


def faults_of(html: str) -> list[str]:
    walk = Walk()
    walk.feed(html)
    return walk.faults()


def test_no_landmark_stands_twice_on_a_page_and_every_field_has_a_name(settings, monkeypatch):
    settings.EMAIL_CHANNEL = "memory"
    monkeypatch.setattr(registry, "installed", {})
    fill_all()
    found = {}
    for name, page in {**PAGES, "api": None}.items():
        client = Client()
        if page is None or page.who:
            client.force_login(User.objects.get(username=page.who if page else "ito"))
        answer = client.get(page.find() if page else "/api/docs")
        if answer.status_code == 200 and (faults := faults_of(answer.content.decode())):
            found[name] = faults
    assert found == {}


def test_what_is_found():
    page = '<main><nav></nav><nav></nav><section><header></header></section><label>A <input></label><input name="b"></main>'
    assert faults_of(page) == ["navigation “” 2 times", "no label: b"]
    assert faults_of(
        '<h2 id="h">Lines</h2><section aria-labelledby="h"></section><div role="region" aria-label="Lines">'
    ) == ["region “Lines” 2 times"]
