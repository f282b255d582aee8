"""The command `dead_letters`: its arguments, letters and batches as lines or JSON, and each verb."""

from __future__ import annotations

import base64
import json
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

from django.db import transaction

from config.admin.levers import fault_of_reason, operator_of_terminal
from config.database.clock import database_now
from config.database.queries import batched, by_key
from config.flows import mask_of
from config.kafka.headers import shown
from config.processes.worker import Options, stop_on_signal
from config.redelivery import Refusal
from config.telemetry.redaction import DOTS, masked, masked_error, on_one_line, table_row
from outbox.audit_log.actions import record
from outbox.audit_log.reveal import LEAST_REASON, REVEAL
from outbox.console_steps import ENDED, Say, StandsStill, left_to_the_worker, take_steps
from outbox.letters.edits import before_and_after
from outbox.letters.field_changes import FieldChange, change_of
from outbox.letters.filters import STARTS, VERBS, Filter
from outbox.letters.models import DeadLetter
from outbox.letters.transitions import CODES
from outbox.messages.filters import MessageFilter
from outbox.messages.models import OutboxMessage
from outbox.replay_batches import requests
from outbox.replay_batches.items import with_reasons
from outbox.replay_batches.models import OUTCOMES, SENDING, ReplayBatch, ReplayItem
from outbox.replay_batches.run import Steps
from outbox.replay_batches.subjects import Rows, subject_of, words_of

__all__ = ["Refusal"]


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
    return texts | {"payload_b64": DOTS, "payload": masked(letter.payload, *mask_of(letter.source))}


def _revealed(letter: DeadLetter) -> dict[str, object]:
    payload = None if letter.payload is None else bytes(letter.payload).decode("utf-8", "backslashreplace")
    return {"payload": payload, "headers": letter.headers, "traceback": letter.traceback}


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    """For people: one field a line, a header each, and of a long payload what fits on a screen."""
    several = {"headers", "traceback"}
    yield from (f"{name:14}{on_one_line(value)}" for name, value in data.items() if name not in {*several, "payload"})
    if data["payload"] is not None:
        yield f"{'payload':14}{data['payload'][:2000]}"
    headers = shown(data.get("headers", ()))
    yield from (f"{'header':14}{on_one_line(f'{name}: {value}')}" for name, value in headers)
    yield from data.get("traceback", "").splitlines()


def _record(ids: Sequence[UUID], reason: str) -> None:
    """One action about all the letters that are shown."""
    with transaction.atomic():
        record(
            operator_of_terminal(), REVEAL, f"{len(ids)} letters", reason=reason, rows=len(ids),
            subject_type="outbox.deadletter", subject_ids=ids,
        )  # fmt: skip


# -- `dead_letters batches|pause|resume|undo|cancel`: replay batches and their levers ------------------------
MOST = 50
BATCH_LEVERS = {"pause": requests.pause, "resume": requests.resume, "undo": requests.undo, "cancel": requests.cancel}


def batch_lines(numbers: Sequence[str], *, as_json: bool) -> Iterator[str]:
    """The newest batches, or those of these numbers, one a line. Raises Refusal for one that does not exist."""
    wanted = [number_of(text) for text in numbers]
    rows = ReplayBatch.objects.order_by("-pk")
    found = list(rows.filter(pk__in=wanted) if wanted else rows[:MOST])
    if missing := set(wanted) - {batch.pk for batch in found}:
        raise Refusal(f"{min(missing)}: no such replay batch")
    for batch in found:
        yield as_line(batch, as_json=as_json)
    if not found and not as_json:
        yield "No replay batches."


def pull_lever(verb: str, number: str, reason: str, *, as_json: bool) -> Iterator[str]:
    """Pull a lever on a batch; says what it is now. Raises Refusal."""
    yield as_line(BATCH_LEVERS[verb](number_of(number), operator_of_terminal(), reason), as_json=as_json)


def as_line(batch: ReplayBatch, *, as_json: bool) -> str:
    """One batch: for people, or as an object."""
    if as_json:
        return json.dumps(batch_as_data(batch))
    numbers = ", ".join(f"{value:,} {name.replace('_', ' ')}" for name in OUTCOMES if (value := getattr(batch, name)))
    words = f"{batch.pk:>6}  {batch.state:10} {batch.verb:8} {batch.requested_by}: {numbers or f'no {batch.nouns[1]}'}"
    return f"{words}  {batch.note}".rstrip()


def batch_as_data(batch: ReplayBatch) -> dict[str, object]:
    """A batch with its counters and times."""
    what: dict[str, object] = {
        "id": batch.pk,
        "verb": batch.verb,
        "state": batch.state,
        "filter": batch.filter,
        "note": batch.note,
    }
    who = {"requested_by": batch.requested_by, "reason": batch.reason, batch.nouns[1]: words_of(batch)}
    times = ("created_at", "pinned_at", "previewed_at", "hold_until", "started_at", "finished_at")
    when = {name: value and value.isoformat() for name in times for value in [getattr(batch, name)]}
    counted = {name: getattr(batch, name) for name in ("pinned", *OUTCOMES)}
    what |= {"change": FieldChange.of(batch.edit).without_values()} if batch.edit else {}
    return {**what, **who, **counted, "skipped_why": batch.skipped_why, "rate": batch.rate, **when}


def number_of(text: str) -> int:
    """Raises Refusal for what is no number of a batch."""
    if not text.isdecimal() or len(text) > 18:
        raise Refusal(f"{text}: not the number of a replay batch")
    return int(text)


# -- `dead_letters requeue|discard|resolve|restore`, `resend_messages` --------------------------------------------------------
# One call is one replay batch, carried out by the call itself.
PAST = {
    "requeue": "requeued",
    "edit": "edited and requeued",
    "discard": "discarded",
    "resolve": "resolved",
    "restore": "restored",
    "resend": "resent",
}
SAMPLES = 3  # letters of an edit whose field is shown
MOST_NAMED = 20  # letters that are named one by one, of each outcome


def carry_out(verb: str, chosen: Filter | MessageFilter, options: Options, say: Say) -> Iterator[str]:
    """Ask for a batch and take its steps, without hold; yields the result.

    Raises Refusal when it did not come to its end, StandsStill where it waits for others.
    """
    requests.check_pace(options["rate"], options["canary"])
    requests.check_code(verb, options.get("code", ""))
    change = change_in(options) if verb == "edit" else None
    if options["dry_run"]:
        yield from rehearse(verb, chosen, change, as_json=options["json"])
        return
    if fault := fault_of_reason(options["reason"], requests.LEAST[verb]):
        raise Refusal(f'--reason "…": {fault}')
    if isinstance(chosen, Filter):
        refuse_closed(verb, chosen)
    steps = Steps()
    asked = {name: options[name] for name in ("reason", "code", "rate", "canary") if name in options}
    token = None if options["detach"] else steps.token
    batch = requests.draft(verb, chosen, operator_of_terminal(), **asked, change=change, token=token, automatic=True)
    if options["detach"]:
        yield as_line(batch, as_json=True) if options["json"] else f"{batch}: the worker replay_letters carries it out"
        return
    with stop_on_signal() as stop:
        why = take_steps(batch, steps, stop, say)
    yield from [as_line(batch, as_json=True)] if options["json"] else account(batch)
    if why:
        raise StandsStill(left_to_the_worker(batch, why))
    if batch.state not in ENDED:
        raise Refusal(f"interrupted: the worker goes on with replay batch {batch.pk} (`dead_letters cancel` stops it)")
    if batch.state in ("stopped", "cancelled"):
        raise Refusal(f"{batch} is {batch.state}: {batch.note}")


def refuse_closed(verb: str, chosen: Filter) -> None:
    """Raise Refusal when every letter that was named is in another state already."""
    if not chosen.ids:
        return
    rows = list(chosen.letters(verb).order_by("pk").values_list("pk", "status"))
    if not any(status == STARTS[verb] for _pk, status in rows):
        said = "; ".join(f"{pk} is {DeadLetter.Status(status).label.lower()}" for pk, status in rows[:MOST_NAMED])
        raise Refusal(f"nothing to {verb}: {said}")


def change_in(options: Options) -> FieldChange:
    """What `edit` is to change. Raises Usage where the call says nothing or several things, Refusal for bad ones."""
    asked = [(verb, options[verb]) for verb in CHANGES if options[verb]]
    if len(asked) != 1:
        raise Usage("edit takes one of --set, --replace, --replace-part and --remove")
    ((verb, given),) = asked
    path, old, new = {1: [*given, "", ""], 2: [given[0], "", given[-1]], 3: given}[len(given)]
    if verb in ("set", "replace") and not options["as"]:
        raise Usage("say --as text or --as json: how the value is meant")
    ticked = {"other_type": options["allow_type"], "add": options["add_missing"]}
    change, faults = change_of({"verb": verb, "path": path, "old": old, "new": new, "as": options["as"], **ticked})
    if change is None:
        raise Refusal("; ".join(f"{name}: {words}" for name, words in faults.items()))
    return change


def rehearse(
    verb: str, chosen: Filter | MessageFilter, change: FieldChange | None = None, *, as_json: bool = False
) -> Iterator[str]:
    """What the batch would do now, judged like its preview; nothing is written."""
    batch = ReplayBatch(verb=verb, edit=change.stored() if change else {})
    eligible, skipped = 0, dict[str, int]()
    many, samples = batch.nouns[1], list[str]()
    for rows in _messages(chosen) if isinstance(chosen, MessageFilter) else _letters(verb, chosen):
        why = subject_of(verb).foresee(batch, rows, database_now())
        if change and len(samples) < SAMPLES:
            samples += [_sample(letter, change) for pk, letter in sorted(rows.items()) if not why[pk]][:SAMPLES]
        verdicts = [*why.values()]
        eligible += verdicts.count("")
        skipped = with_reasons(skipped, filter(None, verdicts))
    if as_json:
        counts = {"eligible": eligible, "skipped": sum(skipped.values()), "skipped_why": skipped}
        yield json.dumps({"verb": verb, "dry_run": True, many: chosen.words(), **counts})
        return
    yield f"would {verb} {eligible} {many}; nothing was changed"
    yield from samples[:SAMPLES]
    yield from _reasons(Counter(skipped))


def _letters(verb: str, chosen: Filter) -> Iterator[Rows]:
    ids = list(chosen.letters(verb).order_by("pk").values_list("pk", flat=True))
    for part in (portion for some in batched(ids, CHUNK) for portion in DeadLetter.objects.portions(some)):
        yield DeadLetter.objects.defer("traceback").in_bulk(part)


def _messages(chosen: MessageFilter) -> Iterator[Rows]:
    for some in by_key(chosen.rows().values_list("pk"), CHUNK // 10):  # of large ones as many as may be in memory
        yield OutboxMessage.objects.among([pk for (pk,) in some]).in_bulk()


def _sample(letter: DeadLetter, change: FieldChange) -> str:
    """What would become of a field, with dots for what its flow does not name."""
    before, after = before_and_after(letter, change)
    return f"{letter.pk}: {before} -> {after}"


def account(batch: ReplayBatch) -> Iterator[str]:
    """The result, and the letters that it spared or that failed."""
    yield f"{batch.requeued + batch.verified} {batch.nouns[1]} {PAST[batch.verb]}"
    for state, words in (("failed_again", "failed again"), ("refused", "refused")):
        items = ReplayItem.objects.of(batch).filter(state=state).oldest_first()[:MOST_NAMED]
        yield from (f"{words} {item.letter}: {item.note}" for item in items)
        if (rest := getattr(batch, state) - MOST_NAMED) > 0:
            yield f"{words}: {rest:,} more"
    yield from _reasons(Counter(batch.skipped_why))


def _reasons(reasons: Counter[str]) -> Iterator[str]:
    return (f"skipped {number}: {why}" for why, number in reasons.most_common())


# -- The arguments of the command `dead_letters`, and which function each of its verbs is --------------------
LEVERS = tuple(BATCH_LEVERS)
CHANGES = ("set", "replace", "replace_part", "remove")
# Options that only these verbs know: with others they would be dropped without a word, and `cancel 7 --dry-run` would cancel.
KNOWN_BY = {
    "code": ("discard",),
    "reveal": ("show",),
    "canary": tuple(sorted(SENDING)),
    **dict.fromkeys((*CHANGES, "as", "allow_type", "add_missing"), ("edit",)),
    **dict.fromkeys(("rate", "detach", "dry_run"), VERBS),
    **dict.fromkeys(("group", "source", "status", "since", "before", "all"), ("list", "show", *VERBS)),
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
