"""A notice that waits in the overflow buffer: its row in the database, the transaction in Kafka, and two owners of the partition.

It leaves out rates, several notices and their order, and how the state of all lanes is restored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.proof.models.explore import Model

MOST_OWNERS = 4


class Owner(NamedTuple):
    """`epoch` is 0 where it owns nothing; the rest is what it believes, from the changelog and the database."""

    epoch: int = 0
    step: str = ""  # `storing`: read, not stored; `stored`; `draining`: its row was read


class Partition(NamedTuple):
    epoch: int = 0  # of the newest transactional producer
    read: bool = False  # the offset of notifications-in is behind the notice
    rows: int = 0  # in the database
    left: int = 0  # in notifications-out, committed
    passed: bool = False  # the changelog says that the row has left
    owners: tuple[Owner, Owner] = (Owner(), Owner())

    def by(self, number: int, owner: Owner, **changes: object) -> Partition:
        both = list(self.owners)
        both[number] = owner
        return self._replace(owners=(both[0], both[1]), **changes)  # type: ignore[arg-type]


GUARDS = {
    "transaction": "output, changelog and offset are one transaction",
    "fence": "a new owner's producer fences off the old one's",
    "row first": "the row is committed before the offset",
    "place": "a notice has one row, by (topic, partition, offset)",
    "passed": "a row that the changelog says has left is deleted, not sent",
}


def steps(at: Partition, guards: frozenset[str]) -> Iterator[tuple[str, Partition]]:
    for number, owner in enumerate(at.owners):
        name = "AB"[number]
        if not owner.epoch:
            if at.epoch < MOST_OWNERS:
                yield f"{name} becomes the owner", at.by(number, Owner(at.epoch + 1), epoch=at.epoch + 1)
            continue
        yield f"{name} dies", at.by(number, Owner())
        fenced = "fence" in guards and owner.epoch != at.epoch
        yield from _store(at, number, owner, fenced, guards)
        yield from _drain(at, number, owner, fenced, guards)


def _store(
    at: Partition, number: int, owner: Owner, fenced: bool, guards: frozenset[str]
) -> Iterator[tuple[str, Partition]]:
    name = "AB"[number]
    if not owner.step and not at.read:
        yield f"{name} reads the notice, which has to wait", at.by(number, owner._replace(step="storing"))
    elif owner.step == "storing":
        rows = 1 if "place" in guards else at.rows + 1
        gone = "passed" in guards and at.passed
        yield f"{name} stores its row", at.by(number, owner._replace(step="stored"), rows=at.rows if gone else rows)
        if "row first" not in guards and not fenced:
            yield f"{name} commits the offset, and dies before its row", at.by(number, Owner(), read=True)
    elif owner.step == "stored":
        if fenced:
            yield f"{name} is fenced off", at.by(number, Owner())
        else:
            yield f"{name} commits the offset", at.by(number, owner._replace(step=""), read=True)


def _drain(
    at: Partition, number: int, owner: Owner, fenced: bool, guards: frozenset[str]
) -> Iterator[tuple[str, Partition]]:
    name = "AB"[number]
    if not owner.step and at.read and at.rows:
        if at.passed and "passed" in guards:
            yield f"{name} deletes the row that has left", at._replace(rows=0)
        else:
            yield f"{name} reads its row", at.by(number, owner._replace(step="draining"))
    elif owner.step == "draining":
        if fenced:
            yield f"{name} is fenced off", at.by(number, Owner())
            return
        left = at.left + at.rows
        yield f"{name} commits that it leaves", at.by(number, owner._replace(step=""), left=left, passed=True)
        if "transaction" not in guards:
            yield f"{name} sends it, and dies before the changelog", at.by(number, Owner(), left=left)


def broken(_before: Partition, after: Partition) -> str:
    if after.left > 1:
        return "left twice"
    return (
        "lost: its offset is committed, and it has no row" if after.read and not after.rows and not after.left else ""
    )


THROTTLER = Model(
    "throttler", Partition(), GUARDS, steps, broken, lambda at: at.left == 1 and at.read and not at.rows,
    lambda at: at.epoch >= MOST_OWNERS,
)  # fmt: skip
