"""The worker `replay_letters`: carries out batches, step by step, and looks after requeued letters."""

from __future__ import annotations

import threading
import time

from config.database.clock import database_now
from config.database.errors import remedy_for
from config.processes import loop
from config.telemetry.logs import log
from config.telemetry.masks import masked_error
from config.telemetry.redaction import said
from outbox.letters.proof import WORTH_ANOTHER_TRY, look_after
from outbox.replay.batches.models import ReplayBatch
from outbox.replay.batches.run import Steps
from outbox.trail.seals import seal

BROKEN = 10.0  # seconds until a batch whose step failed is tried again
PAUSE = 0.5  # seconds: pause and cancel hold within one
LOOK_AFTER = 5.0  # seconds between two rounds over all requeued letters


class BatchWorker:
    """Takes a step of every batch that has something to do, in turn; several workers share them by lease."""

    def __init__(self, stop: threading.Event) -> None:
        self.stop = stop
        self.steps = Steps()
        self.held: set[int] = set()
        self.due: dict[int, float] = {}  # monotonic times, by batch
        self.next_round = 0.0

    def run(self, *, once: bool = False, until_idle: float | None = None) -> None:
        try:
            loop.run(self.tick, self.stop, pause=self.pause, once=once, until_idle=until_idle)
        finally:
            for batch_id in self.held:
                self.steps.leave(batch_id)

    def tick(self) -> int:
        """How many steps did something."""
        done = self._look_after()
        known = list(ReplayBatch.objects.in_work().values_list("pk", flat=True))
        self.due = {batch_id: self.due.get(batch_id, 0.0) for batch_id in known}
        for batch_id in known:
            if self.stop.is_set():
                break
            if self.due[batch_id] <= time.monotonic():
                self.held.add(batch_id)
                wait = self._take(batch_id)
                self.due[batch_id] = time.monotonic() + wait
                done += wait == 0.0
        return done

    def _take(self, batch_id: int) -> float:
        """One step; a batch that its flow breaks on says so, and the others go on."""
        try:
            return self.steps.take(batch_id)
        except Exception as error:
            if remedy_for(error) in WORTH_ANOTHER_TRY:
                raise
            log.exception("replay_step_failed", batch=batch_id)
            self.steps.say(batch_id, f"Waits: {type(error).__name__}: {masked_error(said(error))}")
            return BROKEN

    def pause(self) -> float:
        """Seconds until the first batch is due; new ones are noticed at least as often as PAUSE says."""
        return max(0.0, min([PAUSE, *(due - time.monotonic() for due in self.due.values())]))

    def _look_after(self) -> int:
        if time.monotonic() < self.next_round:
            return 0
        closed = look_after(database_now())
        seal(database_now())  # beat does it once a minute, and not everywhere does a beat run
        self.next_round = time.monotonic() + LOOK_AFTER
        return closed
