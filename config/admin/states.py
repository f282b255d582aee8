"""The states that the admin shows, each with tone, icon and word."""

from __future__ import annotations

from typing import NamedTuple

from config.flows import Tone


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
    "requeued": State("info", "redo", "Requeued"),
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
    "now": State("bad", "triangle", "Now"),
    "soon": State("warn", "clock", "Soon"),
    "watch": State("info", "eye", "Watch"),
}


def in_words(names: str) -> list[tuple[str, str]]:
    """States and their words, as a filter offers them."""
    return [(name, STATES[name].word) for name in names.split()]
