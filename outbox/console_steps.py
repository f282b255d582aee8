"""Takes the steps of a batch that a command carries out, until it has ended or stands still."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from config.database.clock import database_now
from config.processes.worker import Patience
from config.redelivery import Refusal
from outbox.processes.overview import Liveness, sightings
from outbox.replay_batches import waits
from outbox.replay_batches.models import OUTCOMES, ReplayBatch
from outbox.replay_batches.run import Steps

Say = Callable[[str], object]
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

    def look(self, batch: ReplayBatch) -> str:
        """What it waits for, empty where nobody says; asked anew every two seconds in which it has not moved."""
        seen = (batch.state, batch.pinned_at, batch.judged_to, *(getattr(batch, name) for name in OUTCOMES))
        now = time.monotonic()
        if seen != self.seen:
            self.seen, self.at, self.why = seen, now, ""
        if batch.note or now - max(self.at, self.asked_at) >= EVERY:
            self.asked_at, self.why = now, waits.reason(batch, database_now())
        return self.why

    def why_none(self, batch: ReplayBatch) -> str:
        """What a batch that has not moved for too long waits for; empty while that may come by itself."""
        why = self.look(batch)
        # Of a slow rate the next letter may be long in coming, and the note is as old as the last one.
        quiet = time.monotonic() - self.at - (3 / batch.rate if batch.rate else 0.0)
        if quiet < HELD_UP:
            return ""
        return why or ("" if quiet < UNSAID else waits.unsaid(batch, database_now()))


def left_to_the_worker(batch: ReplayBatch, why: str) -> str:
    """What becomes of a batch that a command leaves, in a sentence or two."""
    reports = any(seen.row.command == CARRIER and seen.state is Liveness.RUNS for seen in sightings(database_now()))
    who = f"the worker {CARRIER} goes on with {batch}" + ("" if reports else ", as soon as one runs")
    return f"{why.rstrip('.')}; {batch.eligible:,} to go. Then {who} (`dead_letters cancel {batch.pk}` ends it)"
