"""Replay batches in a terminal: as lines, their levers, and a batch whose steps the command itself takes."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from django.core.management.base import CommandError

from config.admin.levers import fault_of_reason, operator_of_terminal
from config.database.clock import database_now
from config.database.queries import batched, by_key
from config.letters import Refusal
from config.processes.commands import VisibleCommand
from config.processes.worker import Options, Patience, stop_on_signal
from outbox.letters.edits import before_and_after
from outbox.letters.field_changes import FieldChange, change_of
from outbox.letters.filters import STARTS, Filter
from outbox.letters.models import DeadLetter
from outbox.messages.filters import MessageFilter
from outbox.messages.models import OutboxMessage
from outbox.processes.overview import Liveness, sightings
from outbox.replay_batches import lifecycle, requests
from outbox.replay_batches.items import with_reasons
from outbox.replay_batches.models import OUTCOMES, ReplayBatch, ReplayItem
from outbox.replay_batches.run import Steps
from outbox.replay_batches.subjects import Rows, subject_of, words_of

Say = Callable[[str], object]


class Usage(Exception):
    """The call itself makes no sense: exit code 2."""


# -- `dead_letters batches|pause|resume|undo|cancel`: replay batches and their levers ------------------------
MOST = 50
BATCH_LEVERS = {"pause": requests.pause, "resume": requests.resume, "undo": requests.undo, "cancel": requests.cancel}


def batch_lines(numbers: Sequence[str], *, as_json: bool) -> Iterator[str]:
    """The newest batches, or those of these numbers, one a line. Raises Refusal for one that does not exist."""
    wanted = [number_of(text) for text in numbers]
    rows = ReplayBatch.objects.order_by("-pk")
    batches = list(rows.filter(pk__in=wanted) if wanted else rows[:MOST])
    if missing := set(wanted) - {batch.pk for batch in batches}:
        raise Refusal(f"{min(missing)}: no such replay batch")
    for batch in batches:
        yield as_line(batch, as_json=as_json)
    if not batches and not as_json:
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
    what = {"id": batch.pk, **{name: getattr(batch, name) for name in ("verb", "state", "filter", "note")}}
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


# -- `dead_letters requeue|discard|resolve|restore|edit`, `resend_messages` -----------------------------------
# One call is one replay batch, carried out by the call itself.
PAST = {
    "requeue": "requeued",
    "edit": "edited and requeued",
    "discard": "discarded",
    "resolve": "resolved",
    "restore": "restored",
    "resend": "resent",
}
CHANGES = ("set", "replace", "replace_part", "remove")
CHUNK = 500  # letters that are judged together
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
            shown = [letter for pk, letter in sorted(rows.items()) if not why[pk]][:SAMPLES]
            samples += [f"{letter.pk}: {' -> '.join(before_and_after(letter, change))}" for letter in shown]
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


def account(batch: ReplayBatch) -> Iterator[str]:
    """The result, and the letters that it skipped or that failed."""
    yield f"{batch.requeued + batch.verified} {batch.nouns[1]} {PAST[batch.verb]}"
    for state, words in (("failed_again", "failed again"), ("refused", "refused")):
        items = ReplayItem.objects.of(batch).filter(state=state).oldest_first()[:MOST_NAMED]
        yield from (f"{words} {item.letter}: {item.note}" for item in items)
        if (rest := getattr(batch, state) - MOST_NAMED) > 0:
            yield f"{words}: {rest:,} more"
    yield from _reasons(Counter(batch.skipped_why))


def _reasons(reasons: Counter[str]) -> Iterator[str]:
    return (f"skipped {number}: {why}" for why, number in reasons.most_common())


# -- The steps of a batch, until it has ended or stands still -------------------------------------------------
ENDED = ("verifying", "done", "stopped", "cancelled")
EVERY = 2.0  # seconds between two lines of progress, and between two questions what a batch waits for
# Seconds without progress after which a batch is left to the worker: somebody says what holds it up, or nobody does.
HELD_UP, UNSAID = 10.0, 60.0
CARRIER = "replay_letters"


class StandsStill(Refusal):
    """Nothing is wrong with the batch; it goes on when others have done something."""


def take_steps(batch: ReplayBatch, steps: Steps, stop: threading.Event, say: Say) -> str:
    """Until it has ended, stands still, or somebody interrupts; returns why it stands still.

    A database that is away is waited for.
    """
    patience, progress = Patience(stop, tries=None), Standstill()
    said_at, said = time.monotonic(), ""
    try:
        while not stop.is_set() and batch.state not in ENDED:
            wait = patience.attempt(lambda: _step(batch, steps))
            if wait is None:
                progress.at = time.monotonic()
                continue
            why = patience.attempt(lambda: progress.why_none(batch))
            if time.monotonic() - said_at > EVERY or (progress.why and progress.why != said):
                said_at, said = time.monotonic(), progress.why
                say(f"{batch.percent:3.0f} %   {batch.acted_on:,} of {batch.to_act_on:,}  {said}".rstrip())
            if why:
                return why
            stop.wait(wait)
    finally:
        steps.leave(batch.pk)
    return ""


def _step(batch: ReplayBatch, steps: Steps) -> float:
    wait = steps.take(batch.pk)
    batch.refresh_from_db()
    return wait


class Standstill:
    """When a batch moved last, and what it waits for."""

    def __init__(self) -> None:
        self.seen: object = None
        self.at = self.asked_at = time.monotonic()
        self.why = ""

    def why_none(self, batch: ReplayBatch) -> str:
        """What a batch that has not moved for too long waits for; empty while that may come by itself.

        `why` is what it waits for at present, asked anew every two seconds in which it has not moved.
        """
        seen = (batch.state, batch.pinned_at, batch.judged_to, *(getattr(batch, name) for name in OUTCOMES))
        now = time.monotonic()
        if seen != self.seen:
            self.seen, self.at, self.why = seen, now, ""
        if batch.note or now - max(self.at, self.asked_at) >= EVERY:
            self.asked_at, self.why = now, lifecycle.why_it_waits(batch, database_now())
        # Of a slow rate the next letter may be long in coming, and the note is as old as the last one.
        quiet = now - self.at - (3 / batch.rate if batch.rate else 0.0)
        if quiet < HELD_UP:
            return ""
        return self.why or ("" if quiet < UNSAID else lifecycle.waits_for_effect(batch, database_now()))


def left_to_the_worker(batch: ReplayBatch, why: str) -> str:
    """What becomes of a batch that a command leaves, in a sentence or two."""
    reports = any(seen.row.command == CARRIER and seen.state is Liveness.RUNS for seen in sightings(database_now()))
    who = f"the worker {CARRIER} goes on with {batch}" + ("" if reports else ", as soon as one runs")
    return f"{why.rstrip('.')}; {batch.eligible:,} to go. Then {who} (`dead_letters cancel {batch.pk}` ends it)"


# -- The commands themselves ---------------------------------------------------------------------------------
class ConsoleCommand(VisibleCommand):
    """A command that says what a function yields; what keeps it from that is said in one line, with an exit code."""

    def lines(self, options: Options) -> Iterator[str]:
        """What it says. Raises Usage, StandsStill or Refusal."""
        raise NotImplementedError

    def handle(self, *args: object, **options: object) -> None:
        try:
            for line in self.lines(options):
                self.stdout.write(line)
        except Usage as usage:
            raise CommandError(str(usage), returncode=2) from usage
        except StandsStill as still:
            raise CommandError(str(still), returncode=3) from still
        except Refusal as refusal:
            raise CommandError(str(refusal)) from refusal
