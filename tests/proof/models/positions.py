"""Records of one partition, two consumers, a database that may be restored from a backup, and a broker that may forget offsets.

It leaves out several partitions, how many records are read at once, and what a record does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.proof.models.explore import Model

RECORDS = 3
MOST_LIVES = 4


class Consumer(NamedTuple):
    """`first` to `behind` were read and are about to be applied; both 0: nothing is in its hands."""

    first: int = 0
    behind: int = 0


class Log(NamedTuple):
    effects: tuple[int, ...] = (0,) * RECORDS  # how often each record took effect in the database as it is
    keys: frozenset[int] = frozenset()  # places of records whose effect is stored beside them
    mark: int = 0  # stored with the data: the next record to read
    offset: int = 0  # committed to Kafka afterwards
    backup: tuple[tuple[int, ...], frozenset[int], int] | None = None
    restored: bool = False
    lives: int = 0
    consumers: tuple[Consumer, Consumer] = (Consumer(), Consumer())

    def by(self, number: int, consumer: Consumer, **changes: object) -> Log:
        both = list(self.consumers)
        both[number] = consumer
        return self._replace(consumers=(both[0], both[1]), **changes)  # type: ignore[arg-type]


GUARDS = {
    "mark": "whoever gets the partition begins at the mark in the database, not at the offset in Kafka",
    "with the data": "the mark moves in the transaction of the data",
    "place": "a record takes effect once by (topic, partition, offset)",
    "forward": "a mark never moves back",
}


def steps(at: Log, guards: frozenset[str]) -> Iterator[tuple[str, Log]]:
    for number, consumer in enumerate(at.consumers):
        name = "AB"[number]
        start = at.mark if "mark" in guards else at.offset
        if not consumer.behind and start < RECORDS and at.lives < MOST_LIVES:
            for behind in range(start + 1, RECORDS + 1):
                yield (
                    f"{name} reads {start} to {behind - 1}",
                    at.by(number, Consumer(start, behind), lives=at.lives + 1),
                )
        if consumer.behind:
            yield f"{name} dies", at.by(number, Consumer())
            yield from _apply(at, number, consumer, guards)
    if at.mark > at.offset:
        yield "the offset is committed to Kafka", at._replace(offset=at.mark)
    if at.backup is None:
        yield "a backup is made", at._replace(backup=(at.effects, at.keys, at.mark))
    elif not at.restored:
        effects, keys, mark = at.backup
        nobody = (Consumer(), Consumer())
        yield (
            "the backup is restored",
            at._replace(effects=effects, keys=keys, mark=mark, restored=True, consumers=nobody),
        )


def _apply(at: Log, number: int, consumer: Consumer, guards: frozenset[str]) -> Iterator[tuple[str, Log]]:
    name, places = "AB"[number], range(consumer.first, consumer.behind)
    new = [place for place in places if "place" not in guards or place not in at.keys]
    effects = tuple(times + (place in new) for place, times in enumerate(at.effects))
    mark = max(at.mark, consumer.behind) if "forward" in guards else consumer.behind
    written = {"effects": effects, "keys": at.keys | set(places)}
    if "with the data" in guards:
        yield f"{name} commits", at.by(number, Consumer(), mark=mark, **written)
        return
    yield f"{name} commits the data, and the mark", at.by(number, Consumer(), mark=mark, **written)
    yield f"{name} commits the mark, and dies before the data", at.by(number, Consumer(), mark=mark)


def broken(_before: Log, after: Log) -> str:
    if max(after.effects) > 1:
        return "took effect twice"
    if any(not times for times in after.effects[: after.mark]):
        return "lost: the mark is behind it"
    return ""


def done(at: Log) -> bool:
    return at.mark == RECORDS


POSITIONS = Model(
    "positions", Log(), GUARDS, steps, broken, done, lambda at: at.lives >= MOST_LIVES,
    {"forward": "nothing is read twice because a zombie was late; a place that is stored makes it harmless"},
)  # fmt: skip
