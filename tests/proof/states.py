"""Kills or freezes a worker in every state of what is outside it, and judges what became of each case."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps

from config.database.clock import database_now
from config.flows import prove
from outbox.bookkeeping.leases import Claimable
from outbox.bookkeeping.models import JobLease
from tests.crash.platform import Worker
from tests.crash.wire import wait_for
from tests.proof.flows import Flow
from tests.proof.victim import EFFECTS

TOGETHER = 6  # cases that are judged together: `verify` is the longest part of it
ROUNDS = 8  # of recovery; what is then unfinished is stuck
PATIENCE = 90.0  # seconds for a victim to end


@dataclass
class Result:
    """What a flow went through."""

    effects: int
    reached: Counter[int] = field(default_factory=Counter)  # states of the outside, by number
    not_reached: int = 0
    faults: list[str] = field(default_factory=list)


class Proof:
    """One flow on one database; `deed` is kill or freeze."""

    def __init__(self, flow: Flow, deed: str, say: Callable[[str], None]) -> None:
        self.flow, self.deed, self.say = flow, deed, say
        self.file = flow.platform.directory / "effects.json"
        self.cases = 0

    def run(self, most: int, times: int, seed: int, at: Sequence[int] | None = None) -> Result:
        """Each state `times` times, in an order of its own each time; at most so many points, or only those of `at`."""
        self.flow.begin()
        for _ in range(2):  # the first life makes what all later ones find
            first = self._arm()
            victim = self._victim("count", 0)
            assert victim.end(PATIENCE) == 0, victim.text[-2000:]
            effects = json.loads(self.file.read_text())
            self._judge([(first, 0)], result := Result(len(effects)))
        self.say(f"{len(effects)} effects a cycle")
        points = [point for turn in range(times) for point in shuffled(at or range(1, len(effects) + 1), seed + turn)]
        for start in range(0, min(most or len(points), len(points)), TOGETHER):
            group = [(self._arm(), point, self._strike(point, result)) for point in points[start : start + TOGETHER]]
            self._judge([(case, point) for case, point, _ in group], result)
            self.say(f"{result.reached.total()} of {len(points)} points, {len(result.faults)} faults")
        return result

    def _arm(self) -> int:
        self.cases += 1
        self.flow.arm(self.cases)
        return self.cases

    def _victim(self, deed: str, number: int) -> Worker:
        self.file.unlink(missing_ok=True)
        program = ["-m", "tests.proof.victim", deed, str(number), *self.flow.command]
        # With an environment for Python itself it is not forked from a process in which Spillway remembers the clock.
        fresh = {"PYTHONHASHSEED": "0"} if deed == "freeze" else {}
        return self.flow.platform.run(program, "victim", {EFFECTS: str(self.file), **fresh})

    def _strike(self, point: int, result: Result) -> None:
        victim = self._victim(self.deed, point)
        if self.deed == "freeze":
            wait_for(lambda: victim.frozen if victim.alive else True, PATIENCE, "the victim to stop or to end", 0.01)
            if victim.alive:
                self._others_finish()
                victim.thaw()
        code = victim.end(PATIENCE)
        struck = self.file.exists()
        result.reached[point] += struck
        result.not_reached += not struck
        if code not in (0, *((-9,) if self.deed == "kill" else (1,))):
            result.faults.append(f"before effect {point} it ended with {code}: {victim.text[-1500:]}")
        self.flow.away()

    def _others_finish(self) -> None:
        """Time goes on: leases and sessions end, and somebody else does the work."""
        expire_leases()
        self.flow.away()
        self.flow.platform.manage("recover_claims")
        self.flow.platform.manage(*self.flow.command)

    def _judge(self, group: Sequence[tuple[int, int]], result: Result) -> None:
        cases = [case for case, _ in group]
        for _ in range(ROUNDS):
            self._others_finish()
            if not (left := self.flow.unfinished(cases)):
                break
        faults = [f"stuck: {left}"] if left else []
        faults += [str(fault) for fault in self.flow.faults(cases)]
        faults += [str(check) for check in prove(self.flow.proves)["checks"] if not check["ok"]]
        if faults:
            found = f"{[f'case {case} before effect {point}' for case, point in group]}: {faults}"
            self.say(f"FAULT {found[:1500]}")
            result.faults.append(found)


def shuffled(points: Sequence[int], seed: int) -> list[int]:
    order = list(points)
    random.Random(seed).shuffle(order)
    return order


def expire_leases() -> None:
    """Those of the dead and of the frozen; nobody else lives now."""
    now = database_now()
    for model in claimed_models():
        model._default_manager.filter(lease_until__gt=now).update(lease_until=now)
    JobLease.objects.filter(until__gt=now).update(until=now)


def claimed_models() -> Iterator[Any]:
    return (model for model in apps.get_models() if issubclass(model, Claimable))
