"""Template tags for the parts of a page: chips, icons, ages, sparklines, payloads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache

from django import template
from django.template.context import Context
from django.utils import timezone
from django.utils.html import escape, format_html, strip_tags
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst

from config.admin import humanize
from config.admin.html import chip, clock_and_age, icon, moment, plain_state
from config.admin.pages import LeverState
from config.admin.svg import sparkline
from config.telemetry.redaction import DOTS, masked_error

register = template.Library()
for tag in (icon, chip, plain_state, sparkline):
    register.simple_tag(tag)
register.filter("duration", humanize.length)

KEY = re.compile(r"^( *)(&quot;.*?&quot;):", re.MULTILINE)


@register.simple_tag(takes_context=True)
def ago(context: Context, when: datetime | None) -> str:
    """How long since; the absolute time is in the title."""
    return moment(when, humanize.ago(when, context.get("now") or timezone.now()))


@register.simple_tag(takes_context=True)
def at(context: Context, when: datetime | None) -> str:
    """Clock time and age, for detail pages, where the title is never the only place of a fact."""
    return clock_and_age(when, context.get("now") or timezone.now())


@register.simple_tag(takes_context=True)
def lasting(context: Context, since: datetime | None = None, until: datetime | None = None) -> str:
    """`for 38 min` or `in 1 h 1 min`."""
    now = context.get("now") or timezone.now()
    if until:
        return moment(until, humanize.ago(until, now))
    return moment(since, f"for {humanize.length((now - since).total_seconds(), coarse=True)}") if since else ""


@register.filter
def usable(states: Sequence[LeverState]) -> list[LeverState]:
    """The levers that this reader can pull now stand above a page; what bars the others is read after the cause."""
    return [state for state in states if not (state.locked or state.right)]


@register.filter
def barred(states: Sequence[LeverState]) -> list[LeverState]:
    return [state for state in states if state.locked or state.right]


@register.filter
def number(value: float | None) -> str:
    """Thousands separators; a dash for what is not known."""
    return humanize.UNKNOWN if value is None else f"{value:,}"


register.filter("quoted", humanize.quoted)


@register.filter
def runbook_link(page: str) -> str:
    """Where people read this page of docs/, as a link where that is an address."""
    place = humanize.runbook(page)
    if not place.startswith("http"):
        return format_html("<code>{}</code>", place)
    return format_html('<a href="{}" rel="noreferrer">Runbook</a>', place)


@register.filter
def plural(value: int, forms: str) -> str:
    """`{{ n|plural:"letter,letters" }}`."""
    one, many = forms.split(",")
    return humanize.plural(value, one, many)


@register.filter
def highlight(text: str) -> SafeString:
    """Pretty-printed JSON with its keys in another colour, and what is hidden on grey."""
    coloured = KEY.sub(r"\1<b>\2</b>:", escape(text)).replace(DOTS, f'<span class="sw-dots">{DOTS}</span>')
    return mark_safe(coloured)  # noqa: S308 (escaped above)


@register.filter
def masked(error: str) -> str:
    """An error text without what it may repeat of a payload."""
    return masked_error(error)


@lru_cache(maxsize=512)  # the same few for each row
def _label(heading: str) -> str:
    return escape(capfirst(strip_tags(heading)))


@register.filter
def labelled(cells: Sequence[str], headers: Sequence[dict[str, object]]) -> list[SafeString]:
    """A row of a changelist whose cells carry their column's name, for the narrow layout."""
    texts = [_label(str(header["text"])) for header in headers]
    return [
        mark_safe(str(cell).replace("<td", f'<td data-label="{text}"', 1))  # noqa: S308 (both are escaped already)
        for cell, text in zip(cells, [*texts, *[""] * len(cells)], strict=False)
    ]
