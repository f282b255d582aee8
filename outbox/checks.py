"""System checks of the outbox."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error, Tags, register

from config.environment.env import BadSetting
from outbox.channels.handlers import handlers, misfit


@register(Tags.compatibility)
def handlers_fit_the_lease(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """A channel whose calls take longer than the lease would give every message back unsent, for ever."""
    try:
        found = handlers()
    except BadSetting:
        return []  # E001 says so
    return [Error(line, id="spillway.E020") for line in map(misfit, found.values()) if line]
