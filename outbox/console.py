"""The commands `dead_letters` and `resend_messages`: their arguments, each verb, and letters as lines or JSON."""

from __future__ import annotations

import base64
import json
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

from django.db import transaction

from config.admin.levers import fault_of_reason, operator_of_terminal
from config.flows import mask_of
from config.kafka.records import shown_headers
from config.letters import Refusal
from config.processes.worker import Options
from config.telemetry.redaction import DOTS, masked, masked_error, on_one_line, table_row
from outbox.audit_log.actions import record
from outbox.audit_log.reveal import LEAST_REASON, REVEAL
from outbox.console_batches import BATCH_LEVERS, CHANGES, Say, Usage, batch_lines, carry_out, pull_lever
from outbox.letters.filters import VERBS, Filter
from outbox.letters.models import DeadLetter
from outbox.letters.transitions import CODES
from outbox.messages.filters import MessageFilter
from outbox.replay_batches.models import SENDING

# -- The command `dead_letters`: lists and shows letters -----------------------------------------------------
CHUNK = 500
HEADER, WIDTHS = ("LETTER", "ARRIVED", "SOURCE", "REASON", "ABOUT", "ERROR"), (36, 19, 14, 18, 24)


def list_lines(chosen: Filter, as_json: bool) -> Iterator[str]:
    """One line a letter: JSON for every status, or a table of the open ones, unless a status is asked for."""
    letters = chosen.letters("list").order_by("pk")
    letters = letters if as_json or chosen.status else letters.filter(status="open")
    shown = 0
    for letter in letters.one_by_one():
        if not shown and not as_json:
            yield table_row(HEADER, WIDTHS)
        shown += 1
        yield json.dumps(as_data(letter)) if as_json else _line(letter)
    if not shown and not as_json:
        yield f"No {chosen.status or 'open'} dead letters."


def as_data(letter: DeadLetter) -> dict[str, object]:
    """A letter as CONTRACT names its fields; the payload base64-encoded, null for a tombstone."""
    payload = None if letter.payload is None else base64.b64encode(bytes(letter.payload)).decode()
    cause = {"source": letter.source, "step": letter.step, "reason": letter.reason, "error": letter.error}
    state = {"group": letter.group_id, "status": letter.status}
    position = {"topic": letter.topic, "partition": letter.partition, "offset": letter.offset}
    data = {"key": _text(letter.key), "payload_b64": payload, "created_at": letter.created_at.isoformat()}
    more = {"revision": letter.revision, "business_key": letter.business_key, "note": letter.note}
    more |= {"correlation_id": letter.correlation_id, "trace_id": letter.trace_id}
    whole = {"payload_size": letter.payload_size, "payload_sha256": letter.payload_sha256} if letter.is_excerpt else {}
    return {"id": str(letter.pk), **cause, **state, **position, **data, **more, **whole}


def _line(letter: DeadLetter) -> str:
    cells = (
        letter.pk,
        f"{letter.created_at:%F %T}",
        letter.source,
        letter.reason,
        letter.business_key or letter.position,
    )
    return table_row([*cells, masked_error(letter.error)[:200]], WIDTHS)


def _text(key: bytes | memoryview | None) -> str | None:
    return None if key is None else bytes(key).decode("utf-8", "backslashreplace")


# -- A letter as the command shows it ------------------------------------------------------------------------
# With dots for what its flow does not name, or revealed for a reason.
CUT = "Only the first {} letters are shown: narrow it by --group, --source, --status, --since, --before or ids."


def show(chosen: Filter, options: Options) -> Iterator[str]:
    """Everything about the chosen letters; with the option `reveal` what is hidden, too, for the `reason`.

    Raises Refusal for a reason that is none, and behind the last letter when there are more than are shown.
    """
    whole = options["reveal"]
    if whole and (fault := fault_of_reason(options["reason"], LEAST_REASON)):
        raise Refusal(f'--reveal --reason "…": {fault}')
    rows = chosen.letters("show")
    ids = list(rows.order_by("pk").values_list("pk", flat=True)[: CHUNK + 1])
    if whole:
        _record(ids[:CHUNK], options["reason"])
    for letter in islice(rows.filter(pk__in=ids).one_by_one(), CHUNK):
        data = as_data(letter) | (_revealed(letter) if whole else _hidden(letter))
        yield from [json.dumps(data)] if options["json"] else [*_lines(data), ""]
    if len(ids) > CHUNK:
        raise Refusal(CUT.format(CHUNK))


def record_export(chosen: Filter, reason: str) -> None:
    """`list --json` writes payloads out: one action says who did, and of which letters."""
    with transaction.atomic():
        record(
            operator_of_terminal(), "export", f"Dead letters: {chosen.words()}", reason=reason,
            detail={"filter": chosen.stored()}, rows=len(chosen.ids), subject_type="outbox.deadletter",
            subject_ids=chosen.ids,
        )  # fmt: skip


def _hidden(letter: DeadLetter) -> dict[str, Any]:
    """What of a letter is masked, as its page masks it."""
    texts = {"error": masked_error(letter.error), "note": masked_error(letter.note), "key": letter.key and DOTS}
    return texts | {"payload_b64": DOTS, "payload": masked(letter.opened[0] or letter.payload, *mask_of(letter.source))}


def _revealed(letter: DeadLetter) -> dict[str, object]:
    payload = None if letter.payload is None else letter.json_payload.decode("utf-8", "backslashreplace")
    return {"payload": payload, "headers": letter.headers, "traceback": letter.traceback}


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    """For people: one field a line, a header each, and of a long payload what fits on a screen."""
    several = {"headers", "traceback"}
    yield from (f"{name:16}{on_one_line(value)}" for name, value in data.items() if name not in {*several, "payload"})
    if data["payload"] is not None:
        yield f"{'payload':16}{data['payload'][:2000]}"
    headers = shown_headers(data.get("headers", ()))
    yield from (f"{'header':16}{on_one_line(f'{name}: {value}')}" for name, value in headers)
    yield from data.get("traceback", "").splitlines()


def _record(ids: Sequence[UUID], reason: str) -> None:
    """One action about all the letters that are shown."""
    with transaction.atomic():
        record(
            operator_of_terminal(), REVEAL, f"{len(ids)} letters", reason=reason, rows=len(ids),
            subject_type="outbox.deadletter", subject_ids=ids,
        )  # fmt: skip


# -- The arguments of the command `dead_letters`, and which function each of its verbs is --------------------
LEVERS = tuple(BATCH_LEVERS)
# Options that only these verbs know: with others they would be dropped without a word, and `cancel 7 --dry-run` would cancel.
KNOWN_BY = {
    "code": ("discard",),
    "reveal": ("show",),
    "canary": tuple(sorted(SENDING)),
    **dict.fromkeys((*CHANGES, "as", "allow_type", "add_missing"), ("edit",)),
    **dict.fromkeys(("rate", "detach", "dry_run"), VERBS),
    **dict.fromkeys(("group", "source", "status", "since", "before", "all"), ("list", "show", *VERBS)),
}


# What each verb does, as `--help` says it.
DOES = {
    "list": "the open letters, one a line",
    "show": "all of a letter, with dots for what its flow does not name",
    "requeue": "its flow processes it again",
    "edit": "changes a field in a copy of each, and requeues that",
    "discard": "give it up; it can be restored",
    "resolve": "close it: it was dealt with elsewhere",
    "restore": "open a discarded one again",
    "batches": "the newest replay batches, or those of these numbers",
    "pause": "hold a replay batch",
    "resume": "go on with it",
    "undo": "back to its preview, before it has begun",
    "cancel": "end it; what it did stays",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Declare them."""
    add = parser.add_argument
    meaning = "; ".join(f"{verb}: {words}" for verb, words in DOES.items())
    add("verb", choices=["list", "show", *VERBS, "batches", *LEVERS], metavar="VERB", help=meaning)
    add("ids", nargs="*", metavar="ID", help="letters; with batches and its levers, replay batches")
    add("--group", type=int, metavar="G", help="only this failure group")
    add("--source", default="", metavar="S", help="only this source (a stream or flow)")
    add("--status", default="", metavar="S", help="only letters in this state")
    add("--since", default="", metavar="ISO", help="only letters that arrived at this time or later")
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
    add(
        "--canary",
        type=int,
        default=0,
        metavar="N",
        help="requeue, edit: so many letters first; the rest only when they are good",
    )
    add(
        "--set",
        nargs=2,
        metavar=("PATH", "VALUE"),
        help="edit: the field at this JSON path ($.items[0].sku) becomes VALUE",
    )
    add("--replace", nargs=3, metavar=("PATH", "OLD", "NEW"), help="edit: the same, only where the value is OLD")
    add("--replace-part", nargs=3, metavar=("PATH", "OLD", "NEW"), help="edit: OLD inside the text at this path")
    add("--remove", nargs=1, metavar="PATH", help="edit: the field goes")
    add("--as", choices=["text", "json"], default="", help="edit: how --set and --replace mean their values")
    add("--allow-type", action="store_true", help="edit: also where the value had another type")
    add("--add-missing", action="store_true", help="edit: --set also where the field was missing")
    add("--detach", action="store_true", help="leave it to the worker replay_letters, wait for nothing")
    add("--reveal", action="store_true", help="show: the hidden values, too; asks for a reason")
    add("--dry-run", action="store_true", help="say what would be done, and to which letters not")
    add("--json", action="store_true", help="an object a line; list: letters of every status, with their payloads")


def run(options: Options, progress: Say) -> Iterator[str]:
    """What the command says, line by line. Raises Refusal, or Usage for a call that names no letter."""
    verb = options["verb"]
    for name, verbs in KNOWN_BY.items():
        if options[name] not in (None, False, "", 0) and verb not in verbs:
            raise Usage(f"--{name.replace('_', '-')} belongs to {', '.join(verbs)}, not to {verb}")
    if verb == "batches":
        return batch_lines(options["ids"], as_json=options["json"])
    if verb in LEVERS:
        if len(options["ids"]) != 1:
            raise Usage(f"give the number of the replay batch to {verb} (`dead_letters batches` shows them)")
        return pull_lever(verb, options["ids"][0], options["reason"], as_json=options["json"])
    names = ("group", "source", "status", "since", "before", "all")
    chosen = Filter(ids=tuple(options["ids"]), **{name: options[name] for name in names})
    if verb == "list":
        _check(chosen)
        if options["json"]:
            record_export(chosen, options["reason"])
        return list_lines(chosen, options["json"])
    if chosen.names_nothing:
        raise Usage(f"give the ids of letters to {verb} (`dead_letters list` shows them), --group, --source or --all")
    _check(chosen)
    return show(chosen, options) if verb == "show" else carry_out(verb, chosen, options, progress)


def _check(chosen: Filter) -> None:
    """A list of everything is what nobody narrowed."""
    if not chosen.names_nothing:
        chosen.check()


# -- The arguments of the command `resend_messages`, and what it does -----------------------------------------
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
