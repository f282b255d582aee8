"""A flow whose answers a test writes down, and letters of it."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, ClassVar

from django.db import DataError

from config.admin.levers import Operator
from config.database.clock import database_now
from config.flows import Flow
from config.kafka import Replayed
from config.letters import Effect, EffectState, Judgement, Letters
from outbox.letters.burial import Letter, bury
from outbox.letters.filters import Filter
from outbox.letters.models import DeadLetter
from outbox.replay_batches import requests
from outbox.replay_batches.models import OUTCOMES, ReplayBatch, ReplayItem
from outbox.replay_batches.run import BatchWorker

ANNA, BELA = Operator("Anna"), Operator("Bela")
REASON = "the cause is mended"
PATHS = ["tests.outbox.replay_batches.scripted_flow.ScriptedFlow"]


class ScriptedFlow(Flow):
    """Letters of two sources."""

    name = "scripted"

    def letters(self) -> Sequence[Letters]:
        return [Scripted("swift"), Scripted("slow")]


class Scripted(Letters):
    """Letters of `swift` are done at once, letters of `slow` are awaited; what happens to them stands in the class."""

    taken: ClassVar[list[str]] = []  # business keys, in the order of the actions
    ineligible: ClassVar[dict[str, str]] = {}
    fails: ClassVar[set[str]] = set()
    poison: ClassVar[set[str]] = set()  # the database refuses them
    proven: ClassVar[dict[str, Effect]] = {}
    closed: ClassVar[list[str]] = []  # why a replay has to wait
    on_take: ClassVar[list[Callable[[], Any]]] = []

    @classmethod
    def forget(cls) -> None:
        for found in (cls.taken, cls.ineligible, cls.fails, cls.poison, cls.proven, cls.closed, cls.on_take):
            found.clear()

    def judge(self, letters, now):
        why = self.ineligible
        return {one.pk: Judgement(one.business_key not in why, why.get(one.business_key, "Fine.")) for one in letters}

    def take_back(self, letters, now):
        for action in self.on_take:
            action()
        if any(one.business_key in self.poison for one in letters):
            raise DataError("value out of range")
        self.taken.extend(one.business_key for one in letters)
        return {one.pk: self._effect_of(one) for one in letters}

    def _effect_of(self, letter):
        if letter.business_key in self.fails:
            return Effect("failed_again", "fails again")
        return Effect("resolved" if letter.source == "swift" else "waiting", "taken back")

    def effect(self, letters, now):
        return {one.pk: self.proven.get(one.business_key, Effect("waiting")) for one in letters}

    def awaited(self):
        return self.source == "slow"

    def backpressure(self, letters, now):
        return self.closed[0] if self.closed else ""


def letters(
    number: int, source: str = "swift", key: Callable[[int], str] | None = None, now: datetime | None = None
) -> list[uuid.UUID]:
    """So many open letters with the keys K0, K1 … unless `key` names others; their ids, oldest first."""
    start = DeadLetter.objects.count()
    name = key or (lambda at: f"K{start + at}")
    found = []
    for at in range(number):
        record = Replayed("scripted", 0, start + at, 1_700_000_000_000, b"k", b"{}")
        found.append(Letter(source, "test", "broken", "it broke", record, business_key=name(at)))
    bury(found, "g", now or database_now())
    return list(DeadLetter.objects.order_by("pk").values_list("pk", flat=True)[start:])


def draft(verb: str = "requeue", **narrowed: Any) -> ReplayBatch:
    return requests.draft(verb, Filter(**(narrowed or {"all": True})), ANNA)


def step(times: int = 1, worker: BatchWorker | None = None) -> BatchWorker:
    """Ticks of a worker that does not wait for what is due later; a rate of 10,000 has no ramp.

    A worker of its own gives its batches back at the end.
    """
    chosen = worker or fresh()
    for _ in range(times):
        chosen.due.clear()
        chosen.steps.looked_at.clear()
        ReplayBatch.objects.filter(rate=10_000).update(ramp_from=None, tokens=10_000, tokens_at=database_now())
        chosen.tick()
    if worker is None:
        leave(chosen)
    return chosen


def leave(worker: BatchWorker) -> None:
    """As a worker does that is told to stop."""
    for held in worker.held:
        worker.steps.leave(held)


def previewed(verb: str = "requeue", **narrowed: Any) -> ReplayBatch:
    batch = draft(verb, **narrowed)
    run_until(batch, "previewed")
    return batch


def confirmed(
    verb: str = "requeue", *, canary: int | None = 0, rate: float | None = None, **narrowed: Any
) -> ReplayBatch:
    """A batch whose hold is over."""
    return confirm(previewed(verb, **narrowed), canary=canary, rate=rate)


def confirm(batch: ReplayBatch, *, canary: int | None = 0, rate: float | None = None) -> ReplayBatch:
    """End the hold of a previewed batch at once."""
    requests.confirm(batch.pk, ANNA, REASON, typed=str(batch.eligible), canary=canary, rate=rate)
    ReplayBatch.objects.filter(pk=batch.pk).update(hold_until=database_now())
    batch.refresh_from_db()
    return batch


def run_until(batch: ReplayBatch, *states: str, most: int = 400, worker: BatchWorker | None = None) -> ReplayBatch:
    """Ticks until the batch is in one of these states."""
    worker = worker or fresh()
    for _ in range(most):
        batch.refresh_from_db()
        if batch.state in states:
            leave(worker)
            batch.refresh_from_db()
            assert_counted(batch)
            return batch
        step(worker=worker)
    raise AssertionError(f"{batch.state} after {most} ticks: {batch.note}")


def assert_counted(batch: ReplayBatch) -> None:
    """The counters of a batch are those of its items, and all of them together what was pinned."""
    batch.refresh_from_db()
    found = Counter(ReplayItem.objects.of(batch).values_list("state", flat=True))
    assert {name: getattr(batch, name) for name in OUTCOMES} == {name: found[name] for name in OUTCOMES}
    assert sum(found.values()) == batch.pinned


def counts(batch: ReplayBatch) -> dict[str, int]:
    """Its counters that are not zero."""
    batch.refresh_from_db()
    return {name: number for name in OUTCOMES if (number := getattr(batch, name))}


def fresh() -> BatchWorker:
    return BatchWorker(threading.Event())


def prove(*keys: str, state: EffectState = "resolved") -> None:
    """What the flow will answer of the letters with these keys."""
    Scripted.proven.update({key: Effect(state, f"{state} by proof") for key in keys})


def statuses() -> list[str]:
    return list(DeadLetter.objects.order_by("pk").values_list("status", flat=True))
