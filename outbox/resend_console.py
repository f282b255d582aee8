"""The command `resend_messages`: its arguments, and what it says."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator

from config.processes.worker import Options
from outbox.console import Usage, carry_out
from outbox.console_steps import Say
from outbox.messages.filters import MessageFilter


def add_resend_arguments(parser: ArgumentParser) -> None:
    """Declare those of `resend_messages`."""
    add = parser.add_argument
    add("ids", nargs="*", metavar="ID", help="messages")
    add("--since", default="", metavar="ISO", help="only messages written at this time or later")
    add("--before", default="", metavar="ISO", help="only messages written before this time")
    add("--channel", default="", metavar="C", help="only messages of this channel (email)")
    add("--event-type", default="", metavar="E", help="only messages of this event (order.paid)")
    add("--state", default="sent", metavar="S", help="only messages in this state; others than sent are refused")
    add("--reason", default="", help="why; kept in the operator's trail")
    add("--rate", type=float, metavar="N", help="messages a second (default: the channel's own, or 50)")
    add("--canary", type=int, default=0, metavar="N", help="so many first; the rest only when they were accepted")
    add("--detach", action="store_true", help="leave it to the worker replay_letters, wait for nothing")
    add("--dry-run", action="store_true", help="say how many would be sent again, and why others not")
    add("--json", action="store_true", help="the result as an object")


def resend(options: Options, progress: Say) -> Iterator[str]:
    """What `resend_messages` says, line by line. Raises Refusal, or Usage for a call that names no message."""
    names = ("since", "before", "channel", "event_type")
    given = {name: options[name] for name in names}
    state = "" if options["ids"] else options["state"]
    chosen = MessageFilter(ids=tuple(options["ids"]), state=state, **given)
    if chosen.names_nothing:
        raise Usage("give the ids of messages to resend, or --since and what else narrows them")
    chosen.check()
    return carry_out("resend", chosen, options, progress)
