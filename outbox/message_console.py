"""The levers on messages and channels as the console offers them: words, rights, and when each can be pulled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from config.levers import Lever, Outcome
from outbox import channels, levers
from outbox.audit import Operator
from outbox.console import operator_of
from outbox.models import ChannelState, OutboxMessage


def _pull(lever: Callable[[Sequence[Any], Operator, str], int]) -> Callable[[list[Any], Any, str], Outcome]:
    return lambda keys, user, reason: Outcome(lever(keys, operator_of(user), reason))


def _each(lever: Callable[[str, Operator, str], bool]) -> Callable[[list[Any], Any, str], Outcome]:
    return lambda keys, user, reason: Outcome(sum(lever(key, operator_of(user), reason) for key in keys))


def why_not(row: OutboxMessage) -> str:
    """The same words for every lever, so that a page says them once."""
    return f"the message is {row.get_state_display().lower()}."


def _pending(rows: Any) -> Any:
    return rows.filter(state="pending")


def _uncertain(rows: Any) -> Any:
    return rows.filter(state="uncertain")


MESSAGES: dict[str, Any] = {"nouns": ("message", "messages"), "right": "cancel_outboxmessage"}
TRY_NOW = Lever(
    name="try-now", verb="Try now", past="Asked for a try of", icon="play", keep="Let it wait",
    promise="It is due at once and leaves with the next round of a relay, if its channel is open.",
    detail="No attempt is given back. A message of the same aggregate that is still before it goes first.",
    act=_pull(levers.retry_now), ready=_pending, why_not=why_not, question="Try at once:", **MESSAGES,
)  # fmt: skip
IT_WAS_SENT = Lever(
    name="it-was-sent", verb="Mark as sent", past="Marked as sent", icon="tick", keep="Leave it uncertain",
    promise="It counts as sent and is not sent again.",
    detail="Look at the provider first. The mark that it was once uncertain stays.",
    act=_pull(levers.it_was_sent), ready=_uncertain, why_not=why_not, **MESSAGES,
)  # fmt: skip
SEND_AGAIN = Lever(
    name="send-again", verb="Send again", past="Sent again", icon="redo", keep="Leave it uncertain",
    promise="It leaves with the next round of a relay.",
    detail="If the provider did accept the first try and does not honour keys, somebody gets it twice.",
    act=_pull(levers.send_again), ready=_uncertain, why_not=why_not, **MESSAGES,
)  # fmt: skip
CANCEL = Lever(
    name="cancel", verb="Cancel the message", past="Cancelled", icon="ban", keep="Leave it in",
    promise="It will never be sent.",
    detail="A relay that takes it in the meantime wins. The row stays and says who cancelled it and why.",
    act=_pull(levers.cancel), ready=_pending, why_not=why_not, harm=True, least=10, question="Cancel",
    **MESSAGES,
)  # fmt: skip
GIVE_UP = Lever(
    name="give-up", verb="Make it a dead letter", past="Gave up", icon="octagon", keep="Leave it uncertain",
    promise="It becomes a dead letter, to be requeued or discarded there.",
    detail="Messages of the same aggregate that wait for it may go.",
    act=_pull(levers.give_up), ready=_uncertain, why_not=why_not, harm=True, least=10,
    question="Give up", **MESSAGES,
)  # fmt: skip

CHANNELS: dict[str, Any] = {"nouns": ("channel", "channels"), "right": "pause_channel"}
RESUME = Lever(
    name="resume", verb="Resume", past="Resumed", icon="play", keep="Keep it closed",
    promise="What waits is sent at once, at the channel's rate.",
    detail="The breaker is closed, too. If nobody answers still, it opens again by itself; no attempt is used up.",
    act=_each(channels.resume), ready=lambda rows: rows.filter(paused=True),
    why_not=lambda row: f"{row.name} is not paused.", **CHANNELS,
)  # fmt: skip
PAUSE = Lever(
    name="pause", verb="Pause", past="Paused", icon="pause", keep="Let it run",
    promise="Nothing more leaves through it until somebody resumes it.",
    detail="A message that is on its way this second still goes out. The others wait, and may expire.",
    act=_each(channels.pause), ready=lambda rows: rows.filter(paused=False),
    why_not=lambda row: f"{row.name} is paused already.", harm=True, least=10, **CHANNELS,
)  # fmt: skip


def state_of_channel(row: ChannelState, now: Any) -> str:
    """The word for a channel: a key of `config.words.STATES`."""
    if row.paused:
        return "paused"
    if row.breaker == ChannelState.Breaker.OPEN:
        return "breaker"
    return "told_to_wait" if row.wait_until and row.wait_until > now else "healthy"


def state_of_message(row: OutboxMessage) -> str:
    """The same for a message."""
    return "retrying" if row.state == "pending" and row.attempts else row.state
