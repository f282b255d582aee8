"""The arguments of the command `dead_letters`, and which function each of its verbs is."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from config.flows import Refusal
from outbox.letters.closing import CODES
from outbox.letters.filters import VERBS, Filter
from outbox.letters.terminal import list_lines
from outbox.replay.console import batches, deed
from outbox.replay.console.shown import record_export, show

LEVERS = tuple(batches.LEVERS)
# Options that only these verbs know: with others they would be dropped without a word, and `cancel 7 --dry-run` would cancel.
KNOWN_BY = {
    "code": ("discard",),
    "reveal": ("show",),
    **dict.fromkeys(("rate", "canary", "detach", "dry_run"), VERBS),
    **dict.fromkeys(("group", "source", "status", "before", "all"), ("list", "show", *VERBS)),
}


class Usage(Exception):
    """The call itself makes no sense: exit code 2."""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare them."""
    add = parser.add_argument
    add("verb", choices=["list", "show", *VERBS, "batches", *LEVERS])
    add("ids", nargs="*", metavar="ID", help="letters; with batches and its levers, replay batches")
    add("--group", type=int, metavar="G", help="only this failure group")
    add("--source", default="", metavar="S", help="only this source (a stream or flow)")
    add("--status", default="", metavar="S", help="only letters in this state")
    add("--before", default="", metavar="ISO", help="only letters that arrived before this time")
    add("--all", action="store_true", help="every letter, where neither ID nor a filter is given")
    add(
        "--code",
        default="",
        metavar="C",
        help=f"discard: why, in one word ({', '.join(filter(None, CODES))}, or your own)",
    )
    add("--reason", default="", help="why; kept in the operator's trail")
    add("--rate", type=float, metavar="N", help="letters a second (default: the channel's own, or as the flow needs)")
    add("--canary", type=int, default=0, metavar="N", help="so many letters first; the rest only when they are good")
    add("--detach", action="store_true", help="leave it to the worker replay_letters")
    add("--reveal", action="store_true", help="show: the hidden values, too; asks for a reason")
    add("--dry-run", action="store_true", help="say what would be done, and to which letters not")
    add("--json", action="store_true", help="an object a line; list: letters of every status, with their payloads")


def run(options: dict[str, Any], progress: Any) -> Iterator[str]:
    """What the command says, line by line. Raises Refusal, or Usage for a call that names no letter."""
    verb = options["verb"]
    for name, verbs in KNOWN_BY.items():
        if options[name] not in (None, False, "", 0) and verb not in verbs:
            raise Usage(f"--{name.replace('_', '-')} belongs to {', '.join(verbs)}, not to {verb}")
    if verb == "batches":
        return batches.list_lines(options["ids"], as_json=options["json"])
    if verb in LEVERS:
        if len(options["ids"]) != 1:
            raise Usage(f"give the number of the replay batch to {verb} (`dead_letters batches` shows them)")
        return batches.pull(verb, options["ids"][0], options["reason"], as_json=options["json"])
    names = ("group", "source", "status", "before", "all")
    chosen = Filter(ids=tuple(options["ids"]), **{name: options[name] for name in names})
    if verb == "list":
        _check(chosen)
        if options["json"]:
            record_export(chosen, options["reason"])
        return list_lines(chosen, options["json"])
    if chosen.names_nothing:
        raise Usage(f"give the ids of letters to {verb} (`dead_letters list` shows them), --group, --source or --all")
    _check(chosen)
    return show(chosen, options) if verb == "show" else deed.carry_out(verb, chosen, options, progress)


def _check(chosen: Filter) -> None:
    """A list of everything is what nobody narrowed."""
    if not chosen.names_nothing:
        chosen.check()


__all__ = ["Refusal", "Usage", "add_arguments", "run"]
