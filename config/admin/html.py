"""The small parts of a page: icons, chips, times."""

from __future__ import annotations

from datetime import UTC, datetime

from django.utils.html import format_html
from django.utils.safestring import SafeString

from config.admin import humanize, states


def icon(name: str) -> SafeString:
    """One picture of the sprite, drawn in the colour of the text around it."""
    return format_html('<svg class="sw-icon" viewBox="0 0 16 16" aria-hidden="true"><use href="#sw-{}"/></svg>', name)


def chip(state: str, word: str = "") -> SafeString:
    """A state as icon and word; an unknown one is shown as it is, without a tone."""
    tone, picture, known = states.STATES.get(state, states.State("idle", "dashed", state))
    return format_html('<span class="sw-chip sw-{}">{}{}</span>', tone, icon(picture), word or known)


def said(state: str, word: str = "") -> SafeString:
    """A healthy state: an icon and a grey word, without the chip's colour."""
    tone, picture, known = states.STATES[state]
    return format_html('<span class="sw-said sw-{}">{}{}</span>', tone, icon(picture), word or known)


def clock_and_age(when: datetime | None, now: datetime) -> str:
    """`08:12:03, 40 s ago`; a line may end between the two, and nowhere within them."""
    if when is None:
        return humanize.UNKNOWN
    parts = humanize.clock(when, now), humanize.ago(when, now)
    return moment(when, format_html("<span>{},</span> <span>{}</span>", *parts))


def moment(when: datetime | None, text: str) -> str:
    """A `<time>` element with `text`; a plain dash when the time is not known."""
    if when is None:
        return humanize.UNKNOWN
    when = when.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{} UTC">{}</time>', when.isoformat(), f"{when:%Y-%m-%d %H:%M:%S}", text
    )
