"""`dead_letters requeue|discard|resolve|restore`: one call is one replay batch, carried out by the call itself."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from config.admin.levers import fault_of_reason, operator_of_terminal
from config.database.chunks import batched
from config.database.clock import database_now
from config.flows import Refusal
from config.processes.loop import Patience, stop_on_signal
from outbox.letters.filters import STARTS, Filter
from outbox.letters.levers import LEASTS
from outbox.letters.models import DeadLetter
from outbox.replay.batches import deeds, requests
from outbox.replay.batches.models import ReplayBatch, ReplayItem
from outbox.replay.batches.outcomes import with_reasons
from outbox.replay.batches.run import Steps
from outbox.replay.console.batches import as_line

Say = Callable[[str], Any]
PAST = {"requeue": "requeued", "discard": "discarded", "resolve": "resolved", "restore": "restored"}
ENDED = ("verifying", "done", "stopped", "cancelled")
EVERY = 2.0  # seconds between two lines of progress
CHUNK = 500
MOST_NAMED = 20  # letters that are named one by one, of each outcome


def carry_out(verb: str, chosen: Filter, options: dict[str, Any], say: Say) -> Iterator[str]:
    """Ask for a batch and take its steps, without hold; yields the result. Raises Refusal when it did not come to its end."""
    requests.check_pace(options["rate"], options["canary"])
    requests.check_code(verb, options["code"])
    if options["dry_run"]:
        yield from rehearse(verb, chosen, as_json=options["json"])
        return
    if fault := fault_of_reason(options["reason"], LEASTS[verb]):
        raise Refusal(f'--reason "…": {fault}')
    refuse_closed(verb, chosen)
    steps = Steps()
    asked = {name: options[name] for name in ("reason", "code", "rate", "canary")}
    token = None if options["detach"] else steps.token
    batch = requests.draft(verb, chosen, operator_of_terminal(), **asked, token=token, automatic=True)
    if options["detach"]:
        yield as_line(batch, as_json=True) if options["json"] else f"{batch}: the worker replay_letters carries it out"
        return
    with stop_on_signal() as stop:
        _take_steps(batch, steps, stop, say)
    yield from [as_line(batch, as_json=True)] if options["json"] else account(batch)
    if batch.state not in ENDED:
        raise Refusal(f"interrupted: the worker goes on with replay batch {batch.pk} (`dead_letters cancel` stops it)")
    if batch.state in ("stopped", "cancelled"):
        raise Refusal(f"{batch} is {batch.state}: {batch.note}")


def _take_steps(batch: ReplayBatch, steps: Steps, stop: threading.Event, say: Say) -> None:
    """Until it has ended, or somebody interrupts; a database that is away is waited for."""
    patience, said = Patience(stop, tries=None), time.monotonic()
    try:
        while not stop.is_set() and batch.state not in ENDED:
            stop.wait(patience.attempt(lambda: _step(batch, steps)) or 0.0)
            if time.monotonic() - said > EVERY:
                said = time.monotonic()
                say(f"{batch.percent:3.0f} %   {batch.acted_on:,} of {batch.to_act_on:,}  {batch.note}".rstrip())
    finally:
        steps.leave(batch.pk)


def _step(batch: ReplayBatch, steps: Steps) -> float:
    wait = steps.take(batch.pk)
    batch.refresh_from_db()
    return wait


def refuse_closed(verb: str, chosen: Filter) -> None:
    """Raise Refusal when every letter that was named is in another state already."""
    if not chosen.ids:
        return
    rows = list(chosen.letters(verb).order_by("pk").values_list("pk", "status"))
    if not any(status == STARTS[verb] for _pk, status in rows):
        said = "; ".join(f"{pk} is {DeadLetter.Status(status).label.lower()}" for pk, status in rows[:MOST_NAMED])
        raise Refusal(f"nothing to {verb}: {said}")


def rehearse(verb: str, chosen: Filter, *, as_json: bool = False) -> Iterator[str]:
    """What the batch would do now, judged like its preview; nothing is written."""
    eligible, skipped = 0, dict[str, int]()
    ids = list(chosen.letters(verb).order_by("pk").values_list("pk", flat=True))
    for part in (portion for some in batched(ids, CHUNK) for portion in DeadLetter.objects.portions(some)):
        letters = DeadLetter.objects.defer("traceback").in_bulk(part)
        verdicts = [*deeds.foresee(verb, letters, database_now()).values()]
        eligible += verdicts.count("")
        skipped = with_reasons(skipped, filter(None, verdicts))
    if as_json:
        counts = {"eligible": eligible, "skipped": sum(skipped.values()), "skipped_why": skipped}
        yield json.dumps({"verb": verb, "dry_run": True, "letters": chosen.words(), **counts})
        return
    yield f"would {verb} {eligible} letters; nothing was changed"
    yield from _reasons(Counter(skipped))


def account(batch: ReplayBatch) -> Iterator[str]:
    """The result, and the letters that it spared or that failed."""
    yield f"{batch.requeued + batch.verified} letters {PAST[batch.verb]}"
    for state, words in (("failed_again", "failed again"), ("refused", "refused")):
        items = ReplayItem.objects.of(batch).filter(state=state).oldest_first()[:MOST_NAMED]
        yield from (f"{words} {item.letter}: {item.note}" for item in items)
        if (rest := getattr(batch, state) - MOST_NAMED) > 0:
            yield f"{words}: {rest:,} more"
    yield from _reasons(Counter(batch.skipped_why))


def _reasons(reasons: Counter[str]) -> Iterator[str]:
    return (f"skipped {number}: {why}" for why, number in reasons.most_common())
