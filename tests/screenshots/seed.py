"""All sample rows at once: a bad morning of the whole platform."""

from __future__ import annotations

from tests.screenshots.flows import fill_flows
from tests.screenshots.letters import fill_letters
from tests.screenshots.others import fill_others
from tests.screenshots.rows import fill


def fill_all() -> None:
    """Once, into an empty database."""
    fill(busy=True)
    fill_letters()
    fill_flows()  # ends with a paused channel: what is to be sent goes first
    fill_others()
