"""A channel whose other side is a list: it answers as told, counts what it accepted, honours keys or does not."""

from __future__ import annotations

import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime

from django.db import transaction

from outbox.channels.handlers import Message, MessageHandler, Outcome
from outbox.delivery.message_letters import MessageLetters
from outbox.letters.models import DeadLetter
from outbox.messages.models import FLOW
from outbox.messages.publish import publish
from outbox.models import OutboxMessage

SENT = Outcome("sent", receipt="r-1")
PERMANENT = Outcome("permanent", "no such mailbox")
TRANSIENT = Outcome("transient", "greylisted")
UNREACHABLE = Outcome("unreachable", "connection refused")
THROTTLED = Outcome("throttled", "429", retry_after=30)
AUTH = Outcome("auth", "bad key")
AMBIGUOUS = Outcome("ambiguous", "timeout after DATA")


class Scripted(MessageHandler):
    """`answers` go to the next messages, `by_aggregate` to those of an aggregate; what is left over is "sent"."""

    name = "memory"
    timeout = 0.01

    def __init__(
        self, *, acknowledges="each", honours_keys=False, window=1, rate=0.0, uncertain="retry", name="memory"
    ):
        self.name = name
        self.acknowledges = acknowledges
        self.honours_keys = honours_keys
        self.window = window
        self.per_second = rate
        self.uncertain = uncertain
        self.answers: list[Outcome] = []
        self.by_aggregate: defaultdict[str, list[Outcome]] = defaultdict(list)
        self.always: Outcome | None = None
        self.calls: list[list[Message]] = []
        self.accepted: list[uuid.UUID] = []
        self.settlements: list[tuple[uuid.UUID, str]] = []
        self.before: Callable[[Iterable[Message]], None] = lambda messages: None
        self.lock = threading.Lock()

    def send(self, messages):
        self.before(messages)
        with self.lock:
            self.calls.append(list(messages))
            return [self._answer(message) for message in messages]

    def _answer(self, message: Message) -> Outcome:
        scripted = self.by_aggregate[message.aggregate] or self.answers
        outcome = scripted.pop(0) if scripted else self.always or SENT
        # An ambiguous try is the bad case: it was accepted, and nobody heard it.
        if outcome.kind in ("sent", "ambiguous") and not (self.honours_keys and message.id in self.accepted):
            self.accepted.append(message.id)
        return outcome

    def settled(self, results, now):
        self.settlements += [(message.id, outcome.kind) for message, outcome in results]

    def rate(self):
        return self.per_second

    def when_uncertain(self):
        return self.uncertain

    def check(self, payload):
        if payload == {"never": True}:
            raise ValueError("payload: never")

    @property
    def repeats(self) -> dict[uuid.UUID, int]:
        return {pk: number for pk, number in Counter(self.accepted).items() if number > 1}


def promise(aggregate: str = "order:1", *, key: str = "", channel: str = "memory", **more) -> uuid.UUID:
    """Publish in a transaction of its own."""
    with transaction.atomic():
        return publish(
            more.pop("event_type", "order.paid"), aggregate, more.pop("payload", {"n": 1}),
            idempotency_key=key or uuid.uuid4().hex, channel=channel, **more,
        )  # fmt: skip


def message(pk: uuid.UUID) -> OutboxMessage:
    return OutboxMessage.objects.get(pk=pk)


def states() -> dict[str, int]:
    return dict(Counter(OutboxMessage.objects.values_list("state", flat=True)))


def taken_back(message_id: uuid.UUID, now: datetime) -> str:
    """What taking back a letter of the message makes of that: waiting, refused or resolved."""
    with transaction.atomic():
        (effect,) = MessageLetters(FLOW).take_back([DeadLetter(topic_id=str(message_id))], now).values()
    return effect.state
