"""The ways a mail can leave: one class per way, named in CHANNELS and chosen by EMAIL_CHANNEL."""

from __future__ import annotations

from notifications.channels.base import LEAST_WAIT, Channel, configured, said

__all__ = ["LEAST_WAIT", "Channel", "configured", "said"]
