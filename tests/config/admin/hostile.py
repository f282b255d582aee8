"""Requests that nobody's browser makes: what stands in them, and where a page would read it."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote_from_bytes, urlencode

from django.contrib.admin import ModelAdmin, site
from django.http import QueryDict
from django.urls import resolve

# What no field expects, as bytes: some of it is no text at all. U+0000 first, before a good value changes the row.
VALUES = {
    "U+0000": b"The customer\0 called, ticket 4471",
    "no UTF-8": b"\xff\xed\xa0\x80",
    "nothing": b"",
    "two lines": b"a\r\nb",
    "a word": b"x",
    "a huge number": b"9" * 30,
    "more digits than Python reads": b"9" * 5000,
    "digits of other scripts": "²٣".encode(),
    "the end of time": b"9999-12-31T23:59:59.999999-12:00",
}
TYPED = VALUES | {
    "an endless number": b"1e999",
    "no number": b"nan",
    "a negative number": b"-1",
    "a list": b"[1, {}]",
    "an overlong text": b"ab" * 40_000,
    "an emoji and a direction": "\U0001f600\u202e".encode(),
}
LONGEST_LINE = 8000  # bytes of a query that a server takes
# What every list of Django's reads.
OF_LISTS = ("q", "o", "p", "e", "all", "_popup", "_to_field", "_changelist_filters", "_facets")
OF_ACCOUNTS = (
    "username",
    "name",
    "is_staff__exact",
    "groups__id__exact",
    "last_login__year",
    "last_login__gte",
    "id__in",
    "pk",
)
CURSORS = ("{0}", "{0}~{0}", "{0}~{0}~{0}", "1~2026-01-01T00:00:00+00:00~{0}")

Fields = list[tuple[str, str]]


class Forms(HTMLParser):
    """The forms of a page that POST: where to, and their fields."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, Fields]] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.inside = given.get("method", "").lower() == "post"
            if self.inside:
                self.found.append((given.get("action", ""), []))
        elif self.inside and given.get("name") and tag in ("input", "textarea", "button", "select"):
            self.found[-1][1].append((given["name"], given.get("value", "")))

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "form"


def forms_of(html: str) -> list[tuple[str, Fields]]:
    reader = Forms()
    reader.feed(html)
    return reader.found


def page_behind(path: str) -> ModelAdmin | None:
    """The admin page of a model to which an address belongs."""
    name = resolve(path).url_name or ""
    return next((page for model, page in site._registry.items() if name.startswith(_prefix(model))), None)


def _prefix(model: Any) -> str:
    return f"{model._meta.app_label}_{model._meta.model_name}_"


def parameters_of_list(page: ModelAdmin, whole: bool) -> list[str]:
    """What the list of this page is narrowed by; `whole`: with all that lists of Django's read."""
    own = [
        *getattr(page, "links", ()),
        *(found.parameter_name for found in page.list_filter if hasattr(found, "parameter_name")),
    ]
    accounts = OF_ACCOUNTS if page.opts.app_label == "auth" else ()
    return [*own, *accounts, *(OF_LISTS if whole else ())]


class Reads:
    """Which keys a page asks its query for."""

    def __init__(self, monkeypatch: Any) -> None:
        self.keys: set[str] = set()
        for name in ("__getitem__", "getlist", "get"):
            monkeypatch.setattr(QueryDict, name, self._noting(getattr(QueryDict, name)), raising=False)

    def _noting(self, method: Any) -> Any:
        def noted(query: QueryDict, key: str, *rest: Any) -> Any:
            self.keys.add(key)
            return method(query, key, *rest)

        return noted


def queries(given: Fields, name: str) -> Iterator[tuple[str, str]]:
    """(what, query) with one bad value after the other under this name, and the rest as it was."""
    kept = urlencode([(key, value) for key, value in given if key != name])
    forms = CURSORS if name in ("before", "after") else ("{0}",)
    for what, value in VALUES.items():
        for form in forms:
            query = f"{kept}&{name}={form.format(quote_from_bytes(value))}"
            if len(query) < LONGEST_LINE:
                yield what, query


def bodies(fields: Fields, name: str) -> Iterator[tuple[str, bytes]]:
    """(what, body) of a form with one bad value after the other in this field, and something good in the others."""
    kept = [(key, value or "The customer called, ticket 4471") for key, value in fields if key != name]
    for what, value in TYPED.items():
        yield what, f"{urlencode(kept)}&{name}={quote_from_bytes(value)}".encode()
