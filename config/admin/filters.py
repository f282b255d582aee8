"""Filters of lists: a few fixed choices, and a time range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any, cast

from django.contrib import admin, messages
from django.contrib.admin.views.main import ERROR_FLAG, IGNORED_PARAMS, PAGE_VAR, SEARCH_VAR, ChangeList
from django.db import models
from django.http import HttpRequest, HttpResponseRedirect
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from config.admin.lists import AFTER, BEFORE
from config.fields import smallest_uuid7

EVERY = "all"  # the choice of a filter that leaves the list as it is


class Segments(admin.SimpleListFilter):
    """A filter with a few fixed choices; the first one is the default.

    A search asks for one row by its key: it looks in "all", where there is such a choice, and the page shows that.
    """

    template = "admin/filter.html"
    choices_in_words: Sequence[tuple[str, str]] = ()
    field = ""  # what the choice is compared with; "all" leaves the list as it is

    def __init__(
        self, request: HttpRequest, params: dict[str, Any], model: type[models.Model], page: admin.ModelAdmin
    ) -> None:
        self.searching = bool(request.GET.get(SEARCH_VAR, "").strip())
        super().__init__(request, params, model, page)

    @property
    def unknown(self) -> str:
        """Of a value that is none of the choices: a sentence for the page, which shows the default instead."""
        value, known = self.value(), [str(value) for value, _words in self.lookup_choices]
        if not value or value in known:
            return ""
        return f"“{str(value)[:40]}” is no choice of “{self.parameter_name}”; there are {', '.join(known[:20])}."

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> Sequence[tuple[str, str]]:
        return self.choices_in_words

    def queryset(self, request: HttpRequest, queryset: models.QuerySet) -> models.QuerySet:
        chosen = self.chosen()
        return queryset if chosen == EVERY else queryset.filter(**{self.field: chosen})

    def chosen(self) -> str:
        known = [value for value, _ in self.choices_in_words]
        if self.searching and EVERY in known:
            return EVERY
        value = self.value()
        return value if value is not None and value in known else known[0]

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        for value, words in self.choices_in_words:
            query = changelist.get_query_string({str(self.parameter_name): value})
            yield {"selected": value == self.chosen(), "query_string": query, "display": words}


# -- What an address asks for, and its list does not have ----------------------------------------------------
OF_DJANGO = {*IGNORED_PARAMS, PAGE_VAR, BEFORE, AFTER}


def list_without_strangers(page: Any, request: HttpRequest) -> HttpResponseRedirect | None:
    """To the same list without the parameters that it does not have, and a sentence about them; None where it has all.

    Django answers 400, and a person who mistyped a link has lost their list.
    """
    strange = [
        name
        for name, value in request.GET.items()
        if name not in OF_DJANGO and not page.lookup_allowed(name, value, request)
    ]
    if not strange:
        return None
    query = request.GET.copy()
    for name in strange:
        del query[name]
    unreadable = strange == [ERROR_FLAG]  # Django has been here before, and found a value that is none
    asked = ", ".join(f"“{name[:40]}”" for name in strange if name != ERROR_FLAG)
    names = [str(shown.parameter_name) for shown in page.get_list_filter(request) if hasattr(shown, "parameter_name")]
    there = f" It has {', '.join(names)}." if names else ""
    words = (
        "The address held a value that cannot be read." if unreadable else f"This list has no filter {asked}.{there}"
    )
    messages.warning(request, f"{words} The list is shown without it.", fail_silently=True)
    return HttpResponseRedirect(f"{request.path}?{query.urlencode()}")


# -- A time range --------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TimeRange:
    """From `since` on and before `until`; None: without that end."""

    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class ByTime:
    """What the time range of a list is about: a column that begins an index, or that the index of another filter ends with."""

    title: str  # as the filter is headed
    field: str

    def within(self, rows: models.QuerySet, frame: TimeRange) -> models.QuerySet:
        """The rows of this time range."""
        return _between(rows, self.field, frame.since, frame.until)


class ByUuid(ByTime):
    """A UUID of version 7 holds the moment in which it was made, so every index that ends with it serves a time range."""

    def within(self, rows: models.QuerySet, frame: TimeRange) -> models.QuerySet:
        since, until = (
            smallest_uuid7(max(0, int(end.timestamp() * 1000))) if end else None for end in (frame.since, frame.until)
        )
        return _between(rows, self.field, since, until)


class ByNumber(ByTime):
    """A moment without an index, in a table whose number rises with it: the numbers at both ends are looked up by halving.

    Each look reads one row by the primary key; a billion rows need 30 for an end. Rows of two transactions at the same time
    may stand the other way round, so an end is exact to the length of a transaction.
    """

    def within(self, rows: models.QuerySet, frame: TimeRange) -> models.QuerySet:
        since, until = (self._first_from(rows.model, end) if end else None for end in (frame.since, frame.until))
        return _between(rows, "pk", since, until)

    def _first_from(self, model: type[models.Model], moment: datetime) -> int:
        """The smallest number whose row is of this moment or later; one above the largest where there is none."""
        rows = model._default_manager.order_by("pk").values_list("pk", self.field)
        first, last = rows.first(), rows.last()
        if first is None or last is None:
            return 0
        low, high = first[0], last[0] + 1
        while low < high:
            middle = (low + high) // 2
            number, when = rows.filter(pk__gte=middle)[0]
            low, high = (low, middle) if when >= moment else (number + 1, high)
        return int(low)


def _between(rows: models.QuerySet, field: str, since: object, until: object) -> models.QuerySet:
    ends = {f"{field}__gte": since, f"{field}__lt": until}
    return rows.filter(**{lookup: end for lookup, end in ends.items() if end is not None})


WHEN, SINCE, UNTIL = TIMES = ("when", "from", "to")
LENGTHS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7), "month": timedelta(days=31)}
RANGE = "range"  # what is chosen when the address has a start or an end
A_MOMENT = "2026-02-12 or 2026-02-12T10:00"
LATEST = datetime(9999, 12, 30, tzinfo=UTC)  # a day behind it there is no date any more


class WithinTime(Segments):
    """Of every list of what happened: the last hour, yesterday …, or `?from=…&to=…`. Days begin where the page's clock says so."""

    title = "when"
    parameter_name = WHEN
    template = "admin/time_range.html"
    choices_in_words = [
        (EVERY, "Any time"), ("hour", "Last hour"), ("day", "24 h"), ("yesterday", "Yesterday"), ("week", "7 days"),
        ("month", "31 days"),
    ]  # fmt: skip

    def __init__(
        self, request: HttpRequest, params: dict[str, Any], model: type[models.Model], page: admin.ModelAdmin
    ) -> None:
        self.since, self.until = (str(params.pop(name, [""])[-1]).strip() for name in (SINCE, UNTIL))
        self.fault = ""
        self.chosen_frame = TimeRange()
        self.kept: list[tuple[str, str]] = []  # what the form of the two ends sends with them
        super().__init__(request, params, model, page)
        self.happened: ByTime = cast(Any, page).happened  # a page without one does not have this filter
        self.title = self.happened.title
        self.zone = timezone.get_current_timezone_name()

    def queryset(self, request: HttpRequest, queryset: models.QuerySet) -> models.QuerySet:
        if self.chosen() == EVERY:
            return queryset
        try:
            self.chosen_frame = self.frame()
            return self.happened.within(queryset, self.chosen_frame)
        except ValueError as error:
            self.fault = str(error)
            return queryset.none()

    def chosen(self) -> str:
        return RANGE if (self.since or self.until) and not self.searching else super().chosen()

    def frame(self) -> TimeRange:
        """What is chosen, as moments. Raises ValueError with a sentence for the page."""
        chosen, now = self.chosen(), timezone.now()
        if chosen == "yesterday":
            today = _midnight(timezone.localtime(now).date())
            return TimeRange(_midnight(timezone.localtime(now).date() - timedelta(days=1)), today)
        if chosen != RANGE:
            return TimeRange(now - LENGTHS[chosen])
        since, until = _moment("From", self.since, whole=False), _moment("To", self.until, whole=True)
        if since and until and since >= until:
            raise ValueError("The end must be after the start.")
        return TimeRange(since, until)

    def ends(self) -> list[tuple[str, str, str]]:
        """(words, name, value) of the two fields of the form."""
        frame = self.chosen_frame if self.chosen() == RANGE else TimeRange()
        return [
            (words, name, f"{timezone.localtime(end):%Y-%m-%dT%H:%M}" if end else "")
            for words, name, end in (("From", SINCE, frame.since), ("to", UNTIL, frame.until))
        ]

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """As of every filter; the page keeps the other ones in the form of the two ends."""
        self.kept = [
            (name, value)
            for name, value in changelist.params.items()
            if name not in (SEARCH_VAR, SINCE, UNTIL, self.parameter_name)
        ]
        for value, words in self.choices_in_words:
            query = changelist.get_query_string({str(self.parameter_name): value}, [SINCE, UNTIL])
            yield {"selected": value == self.chosen(), "query_string": query, "display": words}


def _midnight(day: Any) -> datetime:
    return timezone.make_aware(datetime.combine(day, time()))


def _moment(end: str, text: str, *, whole: bool) -> datetime | None:
    """An ISO time, or a day: its start, or with `whole` its end; None for no text. Raises ValueError."""
    if not text:
        return None
    try:
        if day := parse_date(text):
            when = _midnight(day + timedelta(days=1) if whole else day)
        else:
            given = parse_datetime(text)
            when = given if given and timezone.is_aware(given) else timezone.make_aware(given) if given else LATEST
        if when >= LATEST:
            raise ValueError
        return when.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{end}: “{text[:40]}” is no time. Write {A_MOMENT}.") from None
