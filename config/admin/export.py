"""A list as CSV: the columns of the page in the words of the page, so that what is masked there is masked here; streamed."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, tzinfo
from functools import lru_cache
from html import unescape
from io import StringIO
from typing import Protocol

from django.contrib.admin import ModelAdmin
from django.contrib.admin.utils import display_for_field, display_for_value, label_for_field, lookup_field
from django.db import models
from django.db.models.options import Options
from django.dispatch import Signal
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone
from django.utils.text import capfirst, slugify

from config import replica
from config.admin import humanize
from config.admin.html import steered
from config.admin.lists import AFTER, BEFORE

# `request`, `model`, `filters` (name to value, of the list's address), `result` (begun, complete, broken off), `rows` (so far).
list_exported = Signal()
PAGE = 500  # rows of a query, and of what is in memory
MOST_KEPT = 500  # characters of a cell that is remembered
BYTE_ORDER = "\ufeff"  # spreadsheets take a file without it for another encoding
# What a spreadsheet calculates, also in the wide form of East Asian keyboards; and blanks that some of them skip first.
FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\r\n]")
# What begins a cell for a reader that splits at `;` (Excel, where the comma is the decimal point) or at tabs, if it calculates what follows.
SPLIT = re.compile(r"([;\t\r\n])(?=(?:[^\S\t\r\n]|\")*[=+\-@＝＋－＠])")
NUMBER = re.compile(r"[+-]?[\d,]+(?:\.\d+)?")
IS_NUMBER = re.compile(r'<span class="sw-number[^"]*">(.*)</span>', re.DOTALL)
TIME = re.compile(r'<time datetime="([^"]*)"[^>]*>.*?</time>', re.DOTALL)
NOT_SAID = re.compile(r'<svg\b.*?</svg>|<small class="sw-narrow-only">.*?</small>', re.DOTALL)
SECOND_LINE = re.compile(r'<span class="sw-second[^"]*">')
TAG = re.compile(r"<[^>]*>")


class PagedList(Protocol):
    """What a file asks of the list that it is made of."""

    model: type[models.Model]
    opts: Options
    model_admin: ModelAdmin
    params: dict[str, str]
    list_per_page: int
    result_list: Sequence[models.Model]
    backwards: bool  # whether the page before `place` is asked for
    place: str  # behind which the page begins
    behind: str  # where the next page begins; empty at the end

    def get_results(self, request: HttpRequest) -> None:
        """Read the page at `place`."""


def answer(request: HttpRequest, changelist: PagedList, *, may_lag: bool) -> StreamingHttpResponse:
    """All rows of a list, as a file. It is written down before the first byte leaves, and when the last one has left."""
    list_exported.send(changelist.model, **_said(request, changelist, "begun", 0))
    response = StreamingHttpResponse(
        _recorded(request, changelist, timezone.get_current_timezone(), may_lag), content_type="text/csv; charset=utf-8"
    )
    name = f"{slugify(str(changelist.opts.verbose_name_plural))}-{timezone.now():%Y-%m-%dT%H%MZ}.csv"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Cache-Control"] = "no-store"
    return response


def _recorded(request: HttpRequest, changelist: PagedList, zone: tzinfo, may_lag: bool) -> Iterator[str]:
    rows, result = 0, "broken off"
    printers = _printers(request, changelist)
    try:
        yield BYTE_ORDER + _lines([_headings(request, changelist)])
        for page in _pages(request, changelist, may_lag):
            with timezone.override(zone):  # of the request, which is over when the rows are read
                text = _lines([harmless(steered(str(row.pk))), *(printed(row) for printed in printers)] for row in page)
            rows += len(page)
            yield text
        result = "complete"
    finally:
        list_exported.send(changelist.model, **_said(request, changelist, result, rows))


def _said(request: HttpRequest, changelist: PagedList, result: str, rows: int) -> dict[str, object]:
    filters = {name: value for name, value in changelist.params.items() if name not in (BEFORE, AFTER)}
    return {"request": request, "model": changelist.model, "filters": filters, "result": result, "rows": rows}


def _pages(request: HttpRequest, changelist: PagedList, may_lag: bool) -> Iterator[Sequence[models.Model]]:
    """The rows in the order of the list; those that move meanwhile are read where they are then."""
    changelist.list_per_page, changelist.backwards, changelist.place = PAGE, False, ""
    while True:
        replica.for_reader(request, may_lag, lambda: changelist.get_results(request))
        yield changelist.result_list
        if not changelist.behind:
            return
        changelist.place = changelist.behind


def _lines(rows: Iterable[Iterable[object]]) -> str:
    text = StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def _headings(request: HttpRequest, changelist: PagedList) -> list[str]:
    page = changelist.model_admin
    named = page.get_list_display(request)
    return ["Id", *(capfirst(str(label_for_field(name, changelist.model, page))) for name in named)]


def _printers(request: HttpRequest, changelist: PagedList) -> list[Callable[[models.Model], str]]:
    """What gives the text of each column for a row; looked up once, not in each cell."""
    page = changelist.model_admin
    return [_printer(page, str(name)) for name in page.get_list_display(request)]


def _printer(page: ModelAdmin, name: str) -> Callable[[models.Model], str]:
    method, empty = getattr(page, name, None), page.get_empty_value_display()
    # Django's list takes a field of the model before a method of the page.
    if not callable(method) or name == "__str__" or name in {field.name for field in page.opts.get_fields()}:
        return lambda row: cell(_shown(page, name, row, empty))
    text: Callable[[models.Model], str] | None = getattr(method, "in_file", None)
    return text or (lambda row: cell(_printed(method(row), empty)))


def _printed(value: object, empty: str) -> str:
    return value if isinstance(value, str) else display_for_value(value, empty)


def _shown(page: ModelAdmin, name: str, row: models.Model, empty: str) -> str:
    """What Django's list would print of a field."""
    field, _attribute, value = lookup_field(name, row, page)
    return _printed(value, empty) if field is None else display_for_field(value, field, empty)


def time(when: datetime | None) -> str:
    return humanize.UNKNOWN if when is None else timezone.localtime(when).isoformat()


def cell(shown: str) -> str:
    """What a page shows in a cell, as text: a time as ISO, a number without separators, lines with `; ` between them."""
    if not hasattr(shown, "__html__"):
        return harmless(_in_one_line(shown))
    return _without_html(str(shown)) if len(shown) <= MOST_KEPT else _without_html.__wrapped__(shown)


@lru_cache(maxsize=2048)  # states, flows and causes come again and again
def _without_html(shown: str) -> str:
    html = NOT_SAID.sub("", shown)
    number = IS_NUMBER.fullmatch(html)
    if number and NUMBER.fullmatch(number[1].strip()):
        return number[1].strip().replace(",", "")  # it is one, so it calculates nothing
    text = TAG.sub("", SECOND_LINE.sub("; ", TIME.sub(r"\1", html)))
    return harmless(_in_one_line(unescape(text)))


def harmless(text: str) -> str:
    """A text that no spreadsheet takes for a formula: with an apostrophe in front where it might, also of a part that such a reader takes for a cell."""
    text = SPLIT.sub(r"\1'", text)
    return f"'{text}" if FORMULA.match(text) else text


def _in_one_line(text: str) -> str:
    return " ".join(steered(text).split())
