"""Admin pages of letters, messages, channels, replays, positions, accounts and the trail."""

from outbox.admin import (
    access,
    channels,
    dead_letters,
    failure_groups,
    messages,
    operator_actions,
    replay_batches,
    replay_items,
    replays,
    watermarks,
)

__all__ = [
    "access",
    "channels",
    "dead_letters",
    "failure_groups",
    "messages",
    "operator_actions",
    "replay_batches",
    "replay_items",
    "replays",
    "watermarks",
]
