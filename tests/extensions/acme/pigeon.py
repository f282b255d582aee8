"""A channel of the outbox."""

from collections.abc import Sequence
from typing import Any

from spillway_ext import Counter, MessageHandler, Outcome

SENT = Counter("acme_pigeons", "Pigeons that were sent.")


class Pigeon(MessageHandler):
    timeout = 5.0

    def check(self, payload: Any) -> None:
        if "text" not in payload:
            raise ValueError("a pigeon needs `text`")

    def send(self, messages: Sequence[Any]) -> list[Outcome]:
        SENT.inc(len(messages))
        return [Outcome("sent", receipt="a feather") for _ in messages]
