"""Takes the steps of a batch that a command carries out, until it has ended or stands still."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from config.admin import humanize
from config.database.clock import database_now
from config.processes.worker import Patience
from config.redelivery import Refusal
from outbox.processes.overview import Liveness, sightings
from outbox.replay_batches.models import OUTCOMES, ReplayBatch, ReplayItem
from outbox.replay_batches.run import Steps
from outbox.replay_batches.subjects import subject_of

Say = Callable[[str], object]
ENDED = ("verifying", "done", "stopped", "cancelled")
EVERY = 2.0  # seconds between two lines of progress
# Seconds without progress after which a batch is left to the worker: somebody says what holds it up, or nobody does.
HELD_UP, UNSAID = 10.0, 60.0
MOST_ASKED = 100  # letters on their way of which is asked what holds them up
CARRIER = "replay_letters"


class StandsStill(Refusal):
    """Nothing is wrong with the batch; it goes on when others have done something."""


def take_steps(batch: ReplayBatch, steps: Steps, stop: threading.Event, say: Say) -> str:
    """Until it has ended, stands still, or somebody interrupts; returns why it stands still.

    A database that is away is waited for.
    """
    patience, progress = Patience(stop, tries=None), Standstill()
    said_at, note = time.monotonic(), ""
    try:
        while not stop.is_set() and batch.state not in ENDED:
            wait = patience.attempt(lambda: _step(batch, steps))
            if wait is None:
                progress.at = time.monotonic()
                continue
            if time.monotonic() - said_at > EVERY or (batch.note and batch.note != note):
                said_at, note = time.monotonic(), batch.note
                say(f"{batch.percent:3.0f} %   {batch.acted_on:,} of {batch.to_act_on:,}  {batch.note}".rstrip())
            if why := patience.attempt(lambda: progress.why_none(batch)):
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
    """When a batch moved last."""

    def __init__(self) -> None:
        self.seen: object = None
        self.at = time.monotonic()

    def why_none(self, batch: ReplayBatch) -> str:
        """What a batch that has not moved for too long waits for; empty while that may come by itself."""
        seen = (batch.state, batch.pinned_at, batch.judged_to, *(getattr(batch, name) for name in OUTCOMES))
        if seen != self.seen:
            self.seen, self.at = seen, time.monotonic()
        # Of a slow rate the next letter may be long in coming, and the note is as old as the last one.
        quiet = time.monotonic() - self.at - (3 / batch.rate if batch.rate else 0.0)
        if quiet < HELD_UP:
            return ""
        return batch.note or held_up(batch) or ("" if quiet < UNSAID else _unsaid(batch))


def held_up(batch: ReplayBatch) -> str:
    """Why what is on its way gets no further; empty where nobody says."""
    why = subject_of(batch.verb).holdup(batch.verb, _on_their_way(batch), database_now())
    return f"Waits: {why}" if why else ""


def _unsaid(batch: ReplayBatch) -> str:
    items = _on_their_way(batch)  # none, where the effect has just come
    ahead = subject_of(batch.verb).ahead(items, database_now()) if items else ""
    words = f"Waits for the effect of {humanize.plural(batch.requeued, *batch.nouns)}, which nobody has seen yet"
    return f"{words}, behind {ahead}" if ahead else words


def _on_their_way(batch: ReplayBatch) -> list[ReplayItem]:
    return list(ReplayItem.objects.of(batch).filter(state="requeued").oldest_first()[:MOST_ASKED])


def left_to_the_worker(batch: ReplayBatch, why: str) -> str:
    """What becomes of a batch that a command leaves, in a sentence or two."""
    reports = any(seen.row.command == CARRIER and seen.state is Liveness.RUNS for seen in sightings(database_now()))
    who = f"the worker {CARRIER} goes on with {batch}" + ("" if reports else ", as soon as one runs")
    return f"{why.rstrip('.')}; {batch.eligible:,} to go. Then {who} (`dead_letters cancel {batch.pk}` ends it)"
