"""Admin pages of letters, messages, channels, replays, positions, accounts and the trail."""

from outbox.accounts import pages as accounts
from outbox.admin import (
    audit_log,
    channels,
    dead_letters,
    messages,
    replay_batches,
    saved_views,
    subscriptions,
    topic_replays,
    workers,
)
from outbox.admin.groups import pages as failure_groups

__all__ = [
    "accounts",
    "audit_log",
    "channels",
    "dead_letters",
    "failure_groups",
    "messages",
    "replay_batches",
    "saved_views",
    "subscriptions",
    "topic_replays",
    "workers",
]
