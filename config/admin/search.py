"""Search, in the header and in lists: rows with a key, and those of which a key begins with what was typed; hits by kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth import get_user_model
from django.db import models
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode

from config.admin.lists import field_of

Row = TypeVar("Row", bound=models.Model)
Page = TypeVar("Page", bound="Searched")
SHORTEST = 3  # characters: fewer are the beginning of nearly everything
MOST_BEGUN = 50
A_FEW = 10  # hits of a kind in the search of the header
HEX = re.compile(r"[0-9a-f]{3,32}")
LAST = "\U0010ffff"  # behind every character, where bytes are compared


def begun_by(rows: models.QuerySet, field: str, text: str) -> models.QuerySet | None:
    """The rows whose `field` begins with `text`, in its order: a range of an index, not a scan. None where none can.

    Of the index `rows` fixes all columns before `field`. A text column must compare bytes (`IdentifierField`); a UUID is
    begun with or without its dashes.
    """
    if len(text) < SHORTEST:
        return None
    low: object = text
    high: object = text + LAST
    if isinstance(field_of(rows.model, field), models.UUIDField):
        digits = text.replace("-", "").lower()
        if not HEX.fullmatch(digits) or text.lower() not in (digits, str(UUID(digits.ljust(32, "0")))[: len(text)]):
            return None  # such as A-471: no UUID has its dashes there
        low, high = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
    return rows.filter(**{f"{field}__gte": low, f"{field}__lte": high}).order_by(field)


def beginning_with(rows: models.QuerySet, field: str, text: str, most: int = MOST_BEGUN) -> list[object]:
    """The primary keys of the first rows whose `field` begins with `text`."""
    begun = begun_by(rows, field, text)
    return [] if begun is None else list(begun.values_list("pk", flat=True)[:most])


def begun_in_words(text: str, number: int) -> str:
    """What a list shows that found no whole key."""
    return f"what begins with “{text}”" + (f", the first {MOST_BEGUN}" if number == MOST_BEGUN else "")


class Searched(admin.ModelAdmin, Generic[Row]):
    """What a page says about the search of its rows."""

    begins: Sequence[str] = ()  # shown columns of which the search takes a beginning

    def find(self, key: str) -> Iterable[Row]:
        """The rows with this key, for the search in the header: exact matches by an index, never a scan."""
        return ()

    def ranges(self) -> Iterable[tuple[models.QuerySet, str]]:
        """Where beginnings are looked for, as `beginning_with` takes it: here columns that begin an index."""
        return [(self.model._default_manager.all(), field) for field in self.begins]

    def begun_rows(self, text: str) -> list[models.QuerySet]:
        """Of each range the rows of which a key begins with this."""
        begun = (begun_by(rows, field, text) for rows, field in self.ranges())
        return [rows for rows in begun if rows is not None]

    def beginning(self, text: str, most: int = MOST_BEGUN) -> list[object]:
        """The keys of the first rows of which a key begins with this, for the search when nothing has the whole key."""
        keys: dict[object, None] = {}
        for rows in self.begun_rows(text):
            if len(keys) < most:
                keys |= dict.fromkeys(rows.values_list("pk", flat=True)[:most])
        return list(keys)[:most]

    def begun(self, request: HttpRequest, text: str, most: int) -> list[Row]:
        """The rows that have these keys, in their order."""
        keys = self.beginning(text, most)
        found = {row.pk: row for row in self.get_queryset(request).filter(pk__in=keys)} if keys else {}
        return [found[key] for key in keys if key in found]

    def words(self, row: Row) -> str:
        """What a row is called in the list of hits."""
        return str(row)

    def shortcut(self, request: HttpRequest, row: Row) -> tuple[str, str]:
        """(words, address) of the lever that a hit of the search offers at once; empty where there is none."""
        return "", ""

    def get_search_results(
        self, request: HttpRequest, queryset: models.QuerySet, search_term: str
    ) -> tuple[models.QuerySet, bool]:
        term = search_term.strip()
        if term:
            keys: list[Any] = [row.pk for row in self.find(term)]
            if not keys and (keys := self.beginning(term)):
                request.__dict__["begun"] = begun_in_words(term, len(keys))
            queryset = queryset.filter(pk__in=keys)
        return queryset, False


# -- The hits of the header ----------------------------------------------------------------------------------
def begun_on(pages: Iterable[Page], text: str, user: Any) -> list[Page]:
    """The pages that have a row of which a key begins with this: one statement looks into all ranges."""
    ranges = [(page, rows) for page in pages for rows in page.begun_rows(text)]
    if not ranges:
        return []
    # Of one row, which is there: that of whoever asks.
    asked = (
        get_user_model()
        ._default_manager.filter(pk=user.pk)
        .values_list(*(models.Exists(rows) for _page, rows in ranges))
    )
    there = zip(ranges, asked.get(), strict=True)
    return list(dict.fromkeys(page for (page, _rows), found in there if found))


class Hit(NamedTuple):
    """A row that was found, and the lever that it offers at once; empty where there is none."""

    words: str
    url: str
    lever: str
    target: str


class HitsOfKind(NamedTuple):
    """The hits on one page of the admin: a few, whether there are more, and the list that has them all."""

    name: str
    hits: Sequence[Hit]
    more: bool
    listed: str


def by_kind(request: HttpRequest, found: Iterable[tuple[Searched, Sequence[Any]]], key: str) -> list[HitsOfKind]:
    """What the page of hits shows. `key` is what the lists are asked for; empty where they know no such key."""
    return [
        HitsOfKind(
            str(page.opts.verbose_name_plural),
            [Hit(page.words(row), page_of(page, row), *page.shortcut(request, row)) for row in rows[:A_FEW]],
            len(rows) > A_FEW,
            list_of(page, key),
        )
        for page, rows in found
    ]


def page_of(page: admin.ModelAdmin, row: models.Model) -> str:
    """The page of one row."""
    return reverse(f"admin:{page.opts.app_label}_{page.opts.model_name}_change", args=[quote(row.pk)])


def list_of(page: admin.ModelAdmin, key: str) -> str:
    """The list of a page, asked for this key; empty where it has no search."""
    if not (key and page.search_fields):
        return ""
    return f"{reverse(f'admin:{page.opts.app_label}_{page.opts.model_name}_changelist')}?{urlencode({'q': key})}"
