"""What a batch waits for, as its page and the command that carries it out say it."""

from __future__ import annotations

from datetime import datetime

from config.admin import humanize
from config.redelivery import Refusal
from outbox.replay_batches import rules
from outbox.replay_batches.items import in_flight
from outbox.replay_batches.models import ReplayBatch, ReplayItem
from outbox.replay_batches.subjects import subject_of

MOST_ASKED = 100  # items on their way of which is asked why they get no further
AWAITING = ("canary", "running", "verifying")


def reason(batch: ReplayBatch, now: datetime) -> str:
    """Why it gets no further, and what helps; empty where nobody says."""
    if batch.note or batch.state not in AWAITING or not batch.requeued or not batch.sends:
        return batch.note
    items = _on_their_way(batch)
    why = subject_of(batch.verb).standstill(items, now) if items else ""
    return f"Waits: {why}." if why else ""


def in_numbers(batch: ReplayBatch, now: datetime) -> str:
    """Its full window, and the live traffic that it stands behind; empty where there is neither."""
    if batch.state not in AWAITING or not batch.requeued or not batch.sends:
        return ""
    one, many = batch.nouns
    said = []
    if batch.eligible and batch.requeued >= _window(batch, now):
        on_their_way = humanize.plural(batch.requeued, f"{one} is", f"{many} are")
        said.append(f"{on_their_way} on their way, the most allowed: waiting for their proof.")
    flying = in_flight(batch)
    if flying and (before := subject_of(batch.verb).ahead(flying, now)):
        said.append(f"Behind {before}.")
    return " ".join(said)


def unsaid(batch: ReplayBatch, now: datetime) -> str:
    """The same in a sentence for a batch that has not moved, though nobody says why."""
    items = _on_their_way(batch)  # none, where the effect has just come
    ahead = subject_of(batch.verb).ahead(items, now) if items else ""
    words = f"Waits for the effect of {humanize.plural(batch.requeued, *batch.nouns)}, which nobody has seen yet"
    return f"{words}, behind {ahead}" if ahead else words


def measured(batch: ReplayBatch, now: datetime) -> float:
    """How many a second had their turn in the last minute."""
    return rules.measured_rate(batch.marks, batch.turns, now.timestamp())


def _window(batch: ReplayBatch, now: datetime) -> int:
    """How many may be on their way; of what stands in line with live traffic no more than ten seconds of what goes."""
    try:
        in_line = subject_of(batch.verb).in_line(batch)
    except Refusal:  # a source that no flow knows any more
        in_line = False
    return min(batch.window, rules.window_of(measured(batch, now))) if in_line else batch.window


def _on_their_way(batch: ReplayBatch) -> list[ReplayItem]:
    return list(ReplayItem.objects.of(batch).filter(state="requeued").oldest_first()[:MOST_ASKED])
