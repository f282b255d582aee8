"""`dead_letters batches|pause|resume|undo|cancel`: replay batches and their levers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from config.admin.levers import operator_of_terminal
from config.flows import Refusal
from outbox.letters.filters import Filter
from outbox.replay.batches import requests
from outbox.replay.batches.models import OUTCOMES, ReplayBatch

MOST = 50
LEVERS = {"pause": requests.pause, "resume": requests.resume, "undo": requests.undo, "cancel": requests.cancel}


def list_lines(numbers: Sequence[str], *, as_json: bool) -> Iterator[str]:
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


def pull(verb: str, number: str, reason: str, *, as_json: bool) -> Iterator[str]:
    """Pull a lever on a batch; says what it is now. Raises Refusal."""
    yield as_line(LEVERS[verb](number_of(number), operator_of_terminal(), reason), as_json=as_json)


def as_line(batch: ReplayBatch, *, as_json: bool) -> str:
    """One batch: for people, or as an object."""
    if as_json:
        return json.dumps(as_data(batch))
    numbers = ", ".join(f"{value:,} {name.replace('_', ' ')}" for name in OUTCOMES if (value := getattr(batch, name)))
    words = f"{batch.pk:>6}  {batch.state:10} {batch.verb:8} {batch.requested_by}: {numbers or 'no letters'}"
    return f"{words}  {batch.note}".rstrip()


def as_data(batch: ReplayBatch) -> dict[str, Any]:
    """A batch with its counters and times."""
    what = {"id": batch.pk, "verb": batch.verb, "state": batch.state, "filter": batch.filter, "note": batch.note}
    who = {"requested_by": batch.requested_by, "reason": batch.reason, "letters": Filter.of(batch.filter).words()}
    times = ("created_at", "pinned_at", "previewed_at", "hold_until", "started_at", "finished_at")
    when = {name: value and value.isoformat() for name in times for value in [getattr(batch, name)]}
    counted = {name: getattr(batch, name) for name in ("pinned", *OUTCOMES)}
    return {**what, **who, **counted, "skipped_why": batch.skipped_why, "rate": batch.rate, **when}


def number_of(text: str) -> int:
    """Raises Refusal for what is no number of a batch."""
    if not text.isdecimal() or len(text) > 18:
        raise Refusal(f"{text}: not the number of a replay batch")
    return int(text)
