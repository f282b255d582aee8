"""The plan of a rotation with its reasons: pure functions of what exists, what must exist, and the day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any, Literal

from config.partitions.spec import Partition, PartitionSpec

DONE = {"create": "created", "drop": "dropped", "keep": "keep"}


@dataclass(frozen=True)
class Step:
    """One partition: what to do with it and why; after `apply`, whether it was done or what went wrong."""

    action: Literal["create", "drop", "keep"]
    partition: Partition
    reason: str
    done: bool = False
    error: str = ""

    @property
    def word(self) -> str:
        return "failed" if self.error else DONE[self.action] if self.done else self.action

    def __str__(self) -> str:
        span = f"{self.partition.lower or 'any'} … {self.partition.upper or 'any'}"
        return f"  {self.word:8} {self.partition.name}  {span:24} {self.error or self.reason}"


@dataclass(frozen=True)
class Plan:
    """The steps for one table; prints itself. `error` is set when the table cannot be rotated at all."""

    spec: PartitionSpec
    using: str
    table: str
    runway: float = 0.0  # days
    steps: Sequence[Step] = ()
    note: str = ""
    error: str = ""

    def only(self, action: str) -> list[Step]:
        return [step for step in self.steps if step.action == action]

    @property
    def failures(self) -> list[str]:
        """One line for each thing that had to be done and could not be."""
        lines = [f"{self.table}: {self.error}"] if self.error else []
        failed = [step for step in self.steps if step.error]
        return lines + [f"{self.table}: {step.partition.name}: {step.error}" for step in failed]

    def as_data(self) -> dict[str, Any]:
        """The same for a program: names, ISO dates, reasons."""
        steps = [
            {
                "action": step.action,
                "partition": step.partition.name,
                "lower": step.partition.lower and step.partition.lower.isoformat(),
                "upper": step.partition.upper and step.partition.upper.isoformat(),
                "reason": step.reason,
                "done": step.done,
                "error": step.error,
            }
            for step in self.steps
        ]
        return {"table": self.table, "runway_days": self.runway, "error": self.error, "steps": steps}

    def __str__(self) -> str:
        if self.error:
            return f"{self.table}: {self.error}"
        words = Counter(step.word for step in self.steps)
        counts = ", ".join(f"{number} {word}" for word, number in sorted(words.items()))
        head = f"{self.table}: {counts}; room for {self.runway:.0f} days"
        return "\n".join([head, *([f"  {self.note}"] if self.note else []), *map(str, self.steps)])


def steps_for(
    spec: PartitionSpec,
    existing: Sequence[Partition],
    now: datetime,
    unfinished: Callable[[Partition], int],
    prefix: str = "p",
) -> list[Step]:
    """Creations first, oldest first, then what happens to each existing partition.

    Every partition is decided by itself: a gap does not protect those behind it. `unfinished` counts the rows that
    keep a partition alive; it is called only for partitions that are old enough to be dropped.
    """
    today = now.astimezone(UTC).date()
    missing = [
        wanted for wanted in spec.wanted(today, prefix) if not any(partition.covers(wanted) for partition in existing)
    ]
    creations = [Step("create", partition, _when(partition, today)) for partition in missing]
    return creations + [_decide(spec, partition, today, unfinished) for partition in existing]


def _decide(spec: PartitionSpec, partition: Partition, today: date, unfinished: Callable[[Partition], int]) -> Step:
    oldest = spec.oldest(today)
    if partition.upper is None:
        return Step("keep", partition, "its bounds are unknown: somebody else made it")
    if oldest is None or partition.upper > oldest:
        return Step("keep", partition, _when(partition, today))
    if count := unfinished(partition):
        return Step("keep", partition, f"{count} unfinished")
    return Step("drop", partition, f"ended before {oldest}, nothing unfinished")


def _when(partition: Partition, today: date) -> str:
    if partition.holds(today):
        return "current"
    return "ahead" if partition.lower and partition.lower > today else "within retention"


def runway_of(existing: Sequence[Partition], now: datetime) -> float:
    """Days from `now` until the first moment that no partition holds; 0 when that is now."""
    today = end = now.astimezone(UTC).date()
    while partition := next((partition for partition in existing if partition.holds(end)), None):
        end = partition.upper or end
    if end == today:
        return 0.0
    return (datetime.combine(end, time(), UTC) - now).total_seconds() / 86_400
