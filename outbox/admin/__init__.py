"""Admin pages of letters, messages, channels, replays, positions and the trail."""

from outbox.admin import (
    channels,
    dead_letters,
    failure_groups,
    messages,
    operator_actions,
    replays,
    watermarks,
)

__all__ = [
    "channels",
    "dead_letters",
    "failure_groups",
    "messages",
    "operator_actions",
    "replays",
    "watermarks",
]
