"""Causes, and what follows from them: by this table home, `doctor` and notices say one thing once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar


class Fact(NamedTuple):
    """What is wrong, and with whom: commands, sources, channels. A cause without any is one for all."""

    kind: str
    subjects: frozenset[str] = frozenset()


def fact(kind: str, *subjects: str) -> Fact:
    return Fact(kind, frozenset(subjects))


DATABASE = "the database does not answer"
BROKER = "Kafka does not answer"
REGISTRY = "the schema registry does not answer"
AWAITS = "a worker waits for the schema registry"
STOPPED = "partitions are stopped"
GONE = "a worker is dead, silent or hangs"
FAILED = "an error ended a worker"
UNCONNECTED = "a worker ended because Kafka did not answer"
PAUSED = "a channel is paused"
UNPUBLISHED = "batches are not published"
UNCUT = "batches are not cut"
WAITING = "work waits for its worker"
SILENT = "a reader does not report"
STANDS = "a reader does not report, and all of its partitions are stopped"
STOP_LETTERS = "letters that stand for stopped partitions"
BREAKER = "nobody answers at a channel"
KAFKA_BREAKER = "nobody answers at a channel that leads to Kafka"
UNKNOWN_OF_BROKER = "what the broker alone knows"
UNKNOWN_OF_DATABASE = "what the database alone knows"

# Of several causes of one thing the first one here has it.
FOLLOWS: Mapping[str, Sequence[str]] = {
    DATABASE: [UNKNOWN_OF_DATABASE],
    BROKER: [SILENT, STANDS, KAFKA_BREAKER, UNCONNECTED, UNPUBLISHED, UNCUT, UNKNOWN_OF_BROKER],
    REGISTRY: [AWAITS],
    AWAITS: [SILENT],
    STOPPED: [FAILED, STANDS, STOP_LETTERS],
    GONE: [SILENT, STANDS, UNPUBLISHED, UNCUT, WAITING],
    FAILED: [SILENT, STANDS, UNPUBLISHED, UNCUT, WAITING],
    UNCONNECTED: [SILENT, STANDS, UNPUBLISHED, UNCUT, WAITING],
    PAUSED: [BREAKER, KAFKA_BREAKER],
    UNPUBLISHED: [UNCUT],
}
EFFECTS = frozenset(kind for kinds in FOLLOWS.values() for kind in kinds)


class Thing(Protocol):
    """A line of home, of `doctor`."""

    @property
    def fact(self) -> Fact | None: ...


Item = TypeVar("Item", bound=Thing)


def causes_first(things: Sequence[Item]) -> list[tuple[Item, list[Item]]]:
    """Each that has no cause among them, in their order, with all that follows from it, from what follows as well."""
    followers: dict[int, list[Item]] = defaultdict(list)
    causes = [at for at, thing in enumerate(things) if thing.fact and thing.fact.kind in FOLLOWS]
    causes.sort(key=lambda at: list(FOLLOWS).index(_kind(things[at])))
    roots = []
    for at, thing in enumerate(things):
        root = at
        while (cause := next((one for one in causes if _follows(things[root], things[one])), None)) is not None:
            root = cause
        if root == at:
            roots.append(at)
        else:
            followers[root].append(thing)
    return [(things[at], followers[at]) for at in roots]


def _follows(thing: Thing, cause: Thing) -> bool:
    if thing.fact is None or cause.fact is None or thing.fact.kind not in FOLLOWS[cause.fact.kind]:
        return False
    return not cause.fact.subjects or bool(cause.fact.subjects & thing.fact.subjects)


def _kind(thing: Thing) -> str:
    return thing.fact.kind if thing.fact else ""


class Line(tuple[str, bool, str]):
    """What a flow says to `doctor` of one thing: (name, is it right, what was seen), and what is wrong with it."""

    fact: Fact | None

    def __new__(cls, name: str, ok: bool, detail: str, fact: Fact | None = None) -> Line:
        line = super().__new__(cls, (name, ok, detail))
        line.fact = None if ok else fact
        return line
