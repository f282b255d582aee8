"""The channels a mail can be sent through: one class each, named in CHANNELS and chosen by EMAIL_CHANNEL."""

from __future__ import annotations

from notifications.channels.base import LEAST_WAIT, Channel, configured, said

__all__ = ["LEAST_WAIT", "Channel", "configured", "said"]
