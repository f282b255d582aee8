"""Who may send which part of the output rate: one record that all owners share, each changing its own entry; pure.

The parts in use never exceed the rate together, whoever pauses, dies, loses the database or is late; ADR 28 has the
proof. An entry is replaced only while the record is as it was read. Times are microseconds of this process's own clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from throttler.limits.demand import PARTS, Demand, fair_share

HOLDS_US = 3_000_000  # a part that was granted, from before the record was read
FRESH_US = 3_000_000  # for which an owner's word counts that it owns its partitions
SPENT_US = 3_300_000  # an entry that has not changed for so long: longer than it held, by any clock
SURE_US = FRESH_US + HOLDS_US + 500_000  # from an owner's last word until no grant of others counts on it any more


@dataclass(frozen=True, slots=True)
class ShareEntry:
    """An owner's part in millionths, what it owns, and what it could send. `basis`: the version that it had read."""

    process: str
    basis: int
    share: int
    partitions: Collection[int]
    demand: Demand = ()

    @property
    def identity(self) -> tuple[str, int]:
        """No two entries that were written have the same."""
        return self.process, self.basis


@dataclass(frozen=True)
class Division:
    """The record: each writer has found the version before its own."""

    version: int = 0
    entries: Mapping[str, ShareEntry] = field(default_factory=dict)


def alone(owned: int, partitions: int) -> int:
    """The part, in millionths, of an owner without a grant."""
    return owned * PARTS // partitions


class Divider:
    """What one owner knows of the record and of when it was so; says what its entry has to be.

    `rate` is in thousandths of a message a second. `replaced`: another process has our name.
    """

    def __init__(self, name: str, process: str, partitions: int, rate: int) -> None:
        self.name, self.process, self.partitions, self.rate = name, process, partitions, rate
        self.replaced = False
        self._wrote = False
        self._blind_until = 0
        self._read: deque[tuple[int, int]] = deque()
        self._seen: dict[str, tuple[tuple[str, int], int]] = {}

    def saw(self, found: Division, asked_us: int, now_us: int) -> None:
        """The record as it was at some moment between the two."""
        if self._read and found.version < self._read[-1][1]:
            # A database of before: what is in use now it does not say. All of that has ended when this has.
            self._read.clear()
            self._seen.clear()
            self._wrote = False
            self._blind_until = now_us + SPENT_US
        self._read.append((asked_us, found.version))
        while len(self._read) > 1 and self._read[0][0] < asked_us - FRESH_US:
            self._read.popleft()
        self._seen = {
            name: self._seen[name] if self._seen.get(name, (None, 0))[0] == entry.identity else (entry.identity, now_us)
            for name, entry in found.entries.items()
        }
        mine = found.entries.get(self.name)
        self.replaced |= self._wrote and mine is not None and mine.process != self.process

    def propose(self, found: Division, owned: Collection[int], demand: Demand, now_us: int) -> Division | None:
        """The record with our entry anew, right after `saw`; None: we must not write, or own nothing.

        `owned` are partitions that the group has confirmed lately.
        """
        if self.replaced or not owned or now_us < self._blind_until:
            return None
        others = {name: entry for name, entry in found.entries.items() if name != self.name}
        others = {name: entry for name, entry in others.items() if not self._spent(name, now_us)}
        vouched = {name: entry for name, entry in others.items() if self._vouched(entry, now_us)}
        pool = self._pool(others, vouched, owned)
        claims = {name: (len(entry.partitions), entry.demand) for name, entry in vouched.items()}
        claims[self.name] = (len(owned), demand)
        fair = fair_share(max(pool, 0), self.rate, claims, self.name)
        share = max(0, min(fair, pool - sum(entry.share for entry in vouched.values())))
        mine = ShareEntry(self.process, found.version, share, tuple(sorted(owned)), demand)
        return Division(found.version + 1, {**others, self.name: mine})

    def wrote(self) -> None:
        """The proposal was written, or may have been."""
        self._wrote = True

    def left(self, found: Division) -> Division | None:
        """The record without us, who will send nothing any more; None: we are not in it."""
        mine = found.entries.get(self.name)
        if mine is None or mine.process != self.process:
            return None
        rest = {name: entry for name, entry in found.entries.items() if name != self.name}
        return Division(found.version + 1, rest)

    def _pool(self, others: Mapping[str, ShareEntry], vouched: Mapping[str, ShareEntry], owned: Collection[int]) -> int:
        """What those divide who own for certain, in millionths.

        The others have what they were granted, or, without a grant, the part of their partitions: whichever is more.
        """
        covered = set(owned).union(*(entry.partitions for entry in vouched.values()))
        known, kept = set(covered), 0
        for name in others.keys() - vouched.keys():
            entry = others[name]
            known.update(entry.partitions)
            kept += max(entry.share, self._part(len(set(entry.partitions) - covered)))
        return PARTS - kept - self._part(self.partitions - len(known))

    def _part(self, number: int) -> int:
        return -(-number * PARTS // self.partitions)

    def _spent(self, name: str, now_us: int) -> bool:
        return now_us >= self._seen[name][1] + SPENT_US

    def _vouched(self, entry: ShareEntry, now_us: int) -> bool:
        """Whether what it owns was true within FRESH_US: it has read what came after a record that we read then."""
        return any(version < entry.basis for asked, version in self._read if asked >= now_us - FRESH_US)
