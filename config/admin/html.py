"""The parts of a page: icons, chips, times, and the look of each state."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from config.admin import humanize
from config.letters import Tone
from config.telemetry.redaction import visible


# -- States: tone, icon, word --------------------------------------------------------------------------------
class State(NamedTuple):
    """Tone, icon and word: a state is always shown with all three."""

    tone: Tone
    icon: str
    word: str


STATES = {
    "open": State("warn", "triangle", "Open"),
    "group_new": State("bad", "triangle", "New"),
    "group_regressed": State("bad", "undo", "Regressed"),
    "group_open": State("warn", "triangle", "Open"),
    "group_acknowledged": State("info", "person", "Acknowledged"),
    "group_resolving": State("info", "redo", "Resolving"),
    "group_resolved": State("ok", "tick", "Resolved"),
    "group_ignored": State("idle", "dashed", "Ignored"),
    "requeued": State("info", "redo", "Requeued, waiting for proof"),
    "failed_again": State("bad", "octagon", "Failed again"),
    "eligible": State("idle", "dashed", "Eligible"),
    "skipped": State("idle", "ban", "Skipped"),
    "verified": State("ok", "tick", "Verified"),
    "refused": State("warn", "ban", "Refused"),
    "left": State("idle", "undo", "Left"),
    "resolved": State("ok", "tick", "Resolved"),
    "discarded": State("idle", "ban", "Discarded"),
    "withdrawn": State("idle", "undo", "Withdrawn"),
    "pending": State("idle", "dashed", "Pending"),
    "claimed": State("info", "play", "Claimed"),
    "publishing": State("info", "play", "Publishing"),
    "sent": State("ok", "tick", "Sent"),
    "parked": State("bad", "octagon", "Dead letter"),
    "held": State("info", "clock", "Holding"),
    "due": State("info", "dashed", "Queued"),
    "waiting": State("idle", "dashed", "Waiting"),
    "empty": State("idle", "dashed", "Empty"),
    "stopped": State("bad", "octagon", "Stopped"),
    "behind": State("warn", "clock", "Behind"),
    "unseen": State("warn", "question", "Not seen"),
    "healthy": State("ok", "tick", "Healthy"),
    "done": State("ok", "tick", "Done"),
    "running": State("info", "play", "Running"),
    "failed": State("bad", "octagon", "Failed"),
    "cancelled": State("idle", "ban", "Cancelled"),
    "paid": State("ok", "tick", "Paid"),
    "refunded": State("idle", "redo", "Refunded"),
    "part_refunded": State("info", "redo", "Partly refunded"),
    "valid": State("ok", "tick", "Valid"),
    "revoked": State("idle", "ban", "Revoked"),
    "retrying": State("warn", "redo", "Pending, will retry"),
    "processing": State("info", "play", "Processing"),
    "uncertain": State("warn", "question", "Uncertain"),
    "dead_lettered": State("bad", "octagon", "Dead letter"),
    "expired": State("idle", "clock", "Expired"),
    "paused": State("bad", "pause", "Paused"),
    "breaker": State("bad", "octagon", "Nobody answers"),
    "told_to_wait": State("warn", "clock", "Told to wait"),
    "permanent": State("bad", "octagon", "Refused"),
    "transient": State("warn", "redo", "Transient"),
    "unreachable": State("warn", "octagon", "Unreachable"),
    "throttled": State("warn", "clock", "Throttled"),
    "auth": State("bad", "lock", "Login refused"),
    "ambiguous": State("warn", "question", "No answer"),
    "accepted": State("idle", "dashed", "Accepted"),
    "deferred": State("warn", "clock", "Deferred"),
    "delivered": State("ok", "tick", "Delivered"),
    "bounced": State("bad", "octagon", "Bounced"),
    "rejected": State("bad", "ban", "Rejected"),
    "complained": State("bad", "triangle", "Complained"),
    "new": State("warn", "clock", "Not applied yet"),
    "applied": State("ok", "tick", "Applied"),
    "no_news": State("idle", "dashed", "Said nothing new"),
    "ignored": State("idle", "ban", "Of no interest"),
    "unknown_message": State("warn", "question", "Message never seen"),
    "other_recipient": State("warn", "question", "Another recipient"),
    "live": State("ok", "tick", "Live"),
    "over_rate": State("warn", "clock", "Waiting"),
    "expiring": State("warn", "clock", "Expiring"),
    "on_hold": State("info", "pause", "On hold"),
    "worker_dead": State("bad", "octagon", "Dead"),
    "worker_failed": State("bad", "octagon", "Failed"),
    "worker_silent": State("bad", "question", "Silent"),
    "worker_hangs": State("warn", "clock", "Hangs"),
    "worker_waits": State("warn", "clock", "Waits"),
    "worker_runs": State("ok", "tick", "Runs"),
    "worker_replaced": State("idle", "redo", "Replaced"),
    "worker_stopped": State("idle", "ban", "Stopped"),
    "notice_works": State("ok", "tick", "Works"),
    "notice_untried": State("idle", "dashed", "Nothing sent yet"),
    "notice_failing": State("bad", "octagon", "Failing"),
    "notice_waiting": State("idle", "clock", "Waiting"),
    "notice_sending": State("info", "play", "On its way"),
    "notice_unsure": State("warn", "question", "May have arrived"),
    "notice_sent": State("ok", "tick", "Sent"),
    "notice_given_up": State("bad", "octagon", "Given up"),
    "now": State("bad", "triangle", "Now"),
    "soon": State("warn", "clock", "Soon"),
    "watch": State("info", "eye", "Watch"),
}


def in_words(names: str) -> list[tuple[str, str]]:
    """States and their words, as a filter offers them."""
    return [(name, STATES[name].word) for name in names.split()]


# -- Small parts of a page -----------------------------------------------------------------------------------
# What turns the reading direction of all that follows, and what shows nothing.
STEERING = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"
TO_THE_LEFT = r"\u0590-\u061b\u061d-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff"
UNUSUAL = re.compile(f"[{STEERING}{TO_THE_LEFT}]")
STEERS = re.compile(f"[{STEERING}]+")
RUN = re.compile(f"[{TO_THE_LEFT}](?:.*[{TO_THE_LEFT}])?", re.DOTALL)
# A form must send back what it was given; a title, an option and the words of a drawing hold no elements.
PART = re.compile(r"(<textarea\b.*?</textarea>|<(title|option|text)\b.*?</\2>|<[^>]*>)", re.DOTALL)


@lru_cache(maxsize=256)
def icon(name: str) -> SafeString:
    """One picture of the sprite, drawn in the colour of the text around it."""
    return format_html('<svg class="sw-icon" viewBox="0 0 16 16" aria-hidden="true"><use href="#sw-{}"/></svg>', name)


@lru_cache(maxsize=1024, typed=True)  # a safe text equals one that is not
def chip(state: str, word: str = "") -> SafeString:
    """A state as icon and word; an unknown one is shown as it is, without a tone."""
    tone, picture, known = STATES.get(state, State("idle", "dashed", state))
    return format_html('<span class="sw-chip sw-{}">{}{}</span>', tone, icon(picture), word or known)


@lru_cache(maxsize=1024, typed=True)
def plain_state(state: str, word: str = "") -> SafeString:
    """A healthy state: an icon and a grey word, without the chip's colour."""
    tone, picture, known = STATES[state]
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
    local = timezone.localtime(when).isoformat()
    return format_html('<time datetime="{}" title="{}">{}</time>', local, humanize.stamp(when), text)


def in_reading_order(html: str) -> str:
    """A page whose texts keep their places: direction controls are written out, and what is read from the right is isolated."""
    if not UNUSUAL.search(html):
        return html
    texts, end = [], 0
    for part in PART.finditer(html):
        texts += [_isolated(html[end : part.start()]), steered(part[0]) if part[2] else part[0]]
        end = part.end()
    return "".join([*texts, _isolated(html[end:])])


def _isolated(text: str) -> str:
    return RUN.sub(r"<bdi>\g<0></bdi>", STEERS.sub(lambda steering: f"<bdi>{visible(steering[0])}</bdi>", text))


def steered(text: str) -> str:
    """A text with what would turn its direction written out."""
    return STEERS.sub(lambda steering: visible(steering[0]), text)
