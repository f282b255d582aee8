"""A channel that takes whole batches and keeps nothing: what is left is the relay itself."""

from __future__ import annotations

from collections.abc import Sequence

from config.settings import *  # noqa: F403 (these are the settings of the bench's processes, too)
from outbox.channels.handlers import Message, MessageHandler, Outcome

HANDLERS = {"noop": "tests.bench.outbox.noop.Noop"}
SENT = Outcome("sent")


class Noop(MessageHandler):
    """Acknowledges at once."""

    acknowledges = "batch"
    timeout = 1.0

    def send(self, messages: Sequence[Message]) -> list[Outcome]:
        return [SENT] * len(messages)
