"""Handlers deliver messages: one class a channel, named in HANDLERS, and the outcomes it answers with."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeVar

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.utils.module_loading import import_string

from config.environment.env import BadSetting
from config.flows import order_in
from config.letters import PayloadForm
from config.telemetry.logs import RowIds

MARGIN = 0.1  # of the lease, kept for settling

Kind = Literal["sent", "permanent", "transient", "unreachable", "throttled", "auth", "ambiguous"]
Item = TypeVar("Item")


class Message(NamedTuple):
    """An `OutboxMessage` as a handler gets it: a tuple, because hydrating models halves the relay's speed."""

    id: uuid.UUID
    event_type: str
    aggregate: str
    payload: str
    correlation_id: str
    traceparent: str
    attempts: int  # with the one under way
    available_at: datetime
    expires_at: datetime
    created_at: datetime
    times_uncertain: int
    times_revived: int

    @property
    def headers(self) -> dict[str, str]:
        """What a record of it, a letter or the log says beside its payload."""
        ids = {"message_id": str(self.id), "event_type": self.event_type}
        return {**ids, "correlation_id": self.correlation_id, "traceparent": self.traceparent}


def ids_of(messages: Collection[object]) -> RowIds:
    """What a line of the log says of messages, rows of the model or tuples of some of its columns."""
    return RowIds(
        messages, message_id="id", aggregate="aggregate", order_id=_order_of, event_type="event_type",
        correlation_id="correlation_id", trace_id="traceparent",
    )  # fmt: skip


def _order_of(message: Any) -> str:
    return order_in(message.aggregate)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one try.

    sent: accepted, `receipt` is the other side's name for it. permanent: never, a dead letter at once.
    transient: later, an attempt is spent. unreachable: nobody answered or the service is down; feeds the
    breaker, spends nothing. throttled: wait `retry_after` seconds, spends nothing. auth: our credentials are
    refused; the channel pauses, nothing is spent. ambiguous: it left us, and no answer came back.
    """

    kind: Kind
    error: str = ""
    receipt: str = ""
    retry_after: float = 0.0  # seconds; 0 leaves the time to the backoff
    least_wait: float = 0.0  # seconds that a transient failure waits at least (greylisting)
    retries_last: float = 0.0  # seconds that all retries together last at least, each longer than the one before
    reason: str = ""  # of the letter that a permanent failure becomes, if there is a better word than "refused"
    unclear: bool = False  # the refusal may be the account's fault: several alike pause the channel
    of_recipient: bool = False  # the refusal names the recipient; if many get the same, the channel pauses as well

    @property
    def ok(self) -> bool:
        return self.kind == "sent"


class MessageHandler:
    """Base of a channel's handler; a subclass and one line in HANDLERS make a channel.

    `acknowledges` "each": a message is tried alone, and its attempt is in the database before the call.
    "batch": up to OUTBOX_BATCH messages go in one call that may be repeated without harm, because the
    receivers deduplicate; no attempt is opened before.
    """

    name = ""
    acknowledges: Literal["each", "batch"] = "each"
    # Whether the other side drops a second message with the same key: then a crash is simply tried again.
    honours_keys = False
    # Messages in flight at once. A crash can repeat as many where keys are not honoured.
    window = 1
    # Seconds after which `send` has answered, at the latest, for one message (for a batch: for all of it).
    timeout = 30.0

    def send(self, messages: Sequence[Message]) -> list[Outcome]:
        """Deliver messages, no two of one aggregate; one outcome each, in their order. Outside any transaction,
        and with a `window` above 1 in threads: no database here.

        "each" gets one message a call. An exception is a bug: all of them are taken as ambiguous ("each") or
        transient ("batch").
        """
        raise NotImplementedError

    def screen(self, messages: Sequence[Message]) -> dict[uuid.UUID, Outcome]:
        """Those that must not be tried, with what becomes of them instead; asked once for all that is about to be
        sent, before any attempt is opened, on the worker's own thread: here the database may be read.
        """
        return {}

    def settled(self, results: Sequence[tuple[Message, Outcome]], now: datetime) -> None:
        """Write down what the handler wants to remember, in the transaction that settles the messages."""

    def in_vain(self, failed: Sequence[tuple[str, bytes]]) -> list[str]:
        """Why another try fails again, of each letter by its error and its payload; empty where that may help.

        The fact, a full stop, and what would have to change: "550 5.1.1 is for good. It fails again unless …".
        """
        return [""] * len(failed)

    def rate(self) -> float:
        """Messages a second over all workers; 0 is unlimited."""
        return 0.0

    def where(self) -> str:
        """Who is asked to take messages: a host and its port or a name, without credentials; "" says nothing."""
        return ""

    def recipient(self, message: Message) -> str:
        """Who it is for: only refusals of different ones can be about the account."""
        return message.aggregate

    def when_uncertain(self) -> Literal["retry", "hold"]:
        """What becomes of a message nobody can tell about after OUTBOX_RECONCILE_SECONDS."""
        return "retry"

    def check(self, payload: object) -> None:
        """Refuse, with a ValueError, a payload that could never be delivered: asked by `publish`."""

    def faults(self, payload: object) -> list[str]:
        """All that `check` would say, one after the other; what is about one value ends with its place: - at `$.to`."""
        try:
            self.check(payload)
        except (ValueError, RecursionError) as error:
            return [str(error)]
        return []

    def form(self, payload: object) -> PayloadForm | None:
        """How people edit such a payload without its JSON; None where they do not."""
        return None

    def readdressed(self, payload: object, address: str) -> object:
        """The payload with another recipient; a ValueError says why there can be none."""
        raise ValueError(f"a message of the channel {self.name} has no address of its own")

    def complete(self, payload: dict[str, object], key: str, at: float) -> dict[str, object]:
        """The payload of another service with what it may leave out filled in; `payload` itself is not changed.

        `key` is unique for the message, `at` the Unix time of its promise: a repeat is completed in the same way. May
        raise ValueError; what it returns goes through `check`.
        """
        return payload

    def renewed(self, payload: object, key: str, at: float) -> object:
        """What a new message says that is made of another's payload: the same, but whatever names one sending is its own.

        `key` is unique for the new message, `at` the Unix time of its promise.
        """
        return payload

    # What follows from `acknowledges`.
    @property
    def opens_attempts(self) -> bool:
        """Whether a try is in the database before its call."""
        return self.acknowledges == "each"

    @property
    def lazy_claim(self) -> bool:
        """Whether a crash of the database may forget a claim: a batch may be sent again without harm."""
        return self.acknowledges == "batch"

    @property
    def relays(self) -> int:
        """Relays of one process. Two for batches: one claims while the other settles, and the database has work
        all the time. Waiting for one mail after the other does not go faster by that; `window` is for it."""
        return 1 if self.acknowledges == "each" else 2

    @property
    def chunk(self) -> int:
        """The most messages that are under way at once."""
        return max(self.window, 1) if self.acknowledges == "each" else settings.OUTBOX_BATCH

    def per_call(self, items: Sequence[Item]) -> list[Sequence[Item]]:
        """Messages of a chunk, or their outcomes, call by call."""
        return [[item] for item in items] if self.acknowledges == "each" else [items]

    @property
    def when_broken(self) -> Kind:
        """What is assumed of messages whose call raised: nobody knows how far it came."""
        return "ambiguous" if self.acknowledges == "each" else "transient"


installed: dict[str, MessageHandler] = {}  # by channel name; tests put theirs here


def handlers() -> dict[str, MessageHandler]:
    """The handlers of `settings.HANDLERS` by channel name, made once. Raises BadSetting for one that cannot be made."""
    if not installed:
        installed.update({name: _made(name, path) for name, path in settings.HANDLERS.items()})
    return installed


def _made(name: str, path: str) -> MessageHandler:
    try:
        handler: MessageHandler = import_string(path)()
    except Exception as error:
        raise BadSetting(f"HANDLERS[{name!r}]: {error}") from error
    handler.name = name
    return handler


def handler_of(channel: str) -> MessageHandler:
    """The handler of a channel; a ValueError names the setting when there is none."""
    try:
        return handlers()[channel]
    except KeyError:
        raise ValueError(f"HANDLERS has no channel {channel!r}") from None


def silent_there(channel: str, error: str) -> str:
    """`mail.example:587: TimeoutError`: where nobody answers, and the error, of which the caller has masked what it hides."""
    handler = handlers().get(channel)
    return ": ".join(filter(None, [handler.where() if handler else "", error]))


def send_budget(handler: MessageHandler) -> float:
    """Seconds of the lease that must be left before a call: its own time, and some to settle."""
    return float(handler.timeout + settings.OUTBOX_LEASE_SECONDS * MARGIN)


def misfit(handler: MessageHandler) -> str:
    """Why this handler would never send anything; empty when it would."""
    if send_budget(handler) < settings.OUTBOX_LEASE_SECONDS:
        return ""
    return (
        f"OUTBOX_LEASE_SECONDS: {settings.OUTBOX_LEASE_SECONDS:g} is too short for channel {handler.name}, "
        f"where one call may take {handler.timeout:g} s"
    )


@register(Tags.compatibility)
def handlers_fit_the_lease(app_configs: object, **_: object) -> list[CheckMessage]:
    """A channel whose calls take longer than the lease would give every message back unsent, for ever."""
    try:
        channels = handlers()
    except BadSetting:
        return []  # E001 says so
    return [Error(line, id="spillway.E020") for line in map(misfit, channels.values()) if line]
