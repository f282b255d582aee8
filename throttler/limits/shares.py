"""The rate of all, shared: each owner's part by demand, the record in which owners divide it, and the part of this one. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

# -- What each owner should have; pure -----------------------------------------------------------------------
# Max-min fairness by weight over the customers of all owners: each has what it can send, up to one level per weight. An
# owner says how much its customers could send as buckets, `(thousandths of a message a second, weight)` each.
PARTS = 1_000_000
FLOOR = 50  # a fiftieth of the rate goes by partitions: who begins to send need not wait for the next report
LOOKED_AT = 5000  # lanes that wait, at a time: the others are taken to be like them
ROOM = 5  # of four: who was not cut short may send a little more in the next second
SECOND_US = 1_000_000
SHORTEST_US = 500_000  # between two measurements

Bucket = tuple[int, int]
Demand = tuple[Bucket, ...]
Key = TypeVar("Key")


def demand_of(wants: Iterable[Bucket]) -> Demand:
    """The same in buckets of which each is twice as fast as the one before."""
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for want, weight in wants:
        bucket = sums[(want // max(weight, 1)).bit_length()]
        bucket[0] += want
        bucket[1] += max(weight, 1)
    return tuple((want, weight) for _size, (want, weight) in sorted(sums.items()))


def level(demand: Iterable[Bucket], room: float) -> float | None:
    """Up to how much per weight everybody can have; None: all that they want."""
    buckets = sorted(demand, key=lambda bucket: bucket[0] / bucket[1])
    weights = sum(weight for _want, weight in buckets)
    for want, weight in buckets:
        if want * weights > room * weight:
            return room / weights
        room -= want
        weights -= weight
    return None


def at_level(demand: Demand, most: float | None) -> float:
    """What an owner of this demand sends at a level."""
    return sum(want if most is None else min(want, most * weight) for want, weight in demand)


def fair_share(pool: int, rate: int, claims: Mapping[str, tuple[int, Demand]], name: str) -> int:
    """What `name` should have of `pool`, in millionths of `rate`, which is in thousandths of a message a second.

    `claims` are of all who divide the pool: how many partitions, and what they could send. What nobody wants is
    divided by partitions, and a little of the rest as well.
    """
    owned, demand = claims[name]
    part = owned / sum(number for number, _demand in claims.values())
    floor = pool / FLOOR
    room = (pool - floor) * rate / PARTS
    everybody = [bucket for _number, one in claims.values() for bucket in one]
    most = level(everybody, room)
    spare = 0.0 if most is not None else room - sum(want for want, _weight in everybody)
    return int(floor * part + (at_level(demand, most) + spare * part) * PARTS / rate)


class DemandMeter:
    """What the customers of this process send, and what those who are cut short could send. One thread."""

    def __init__(self) -> None:
        self.demand: Demand = ()  # replaced as a whole: others may read it
        self._sent: Counter[str] = Counter()
        self._since = 0

    def sent(self, customers: Iterable[str]) -> None:
        self._sent.update(customers)

    def measure(
        self, now_us: int, waiting: Iterable[Key], count: int,
        achievable_rate: Callable[[Key], tuple[str, int, int]], weight_of: Callable[[str], int],
    ) -> None:  # fmt: skip
        """Twice a second at most. `waiting`: keys of `count` lanes that are cut short; `achievable_rate`: `(customer, want, weight)`."""
        took = now_us - self._since
        if took < SHORTEST_US:
            return
        looked = list(islice(waiting, LOOKED_AT))
        rates = [achievable_rate(key) for key in looked]
        times = max(1, round(count / len(rates))) if rates else 1
        for customer, _want, _weight in rates:
            self._sent.pop(customer, None)
        wants = [(want * times, weight * times) for _customer, want, weight in rates]
        wants += [
            (number * 1000 * SECOND_US * ROOM // (4 * took), weight_of(customer))
            for customer, number in self._sent.items()
        ]
        self.demand = demand_of(wants)
        self._sent.clear()
        self._since = now_us


# -- Who may send which part now; pure -----------------------------------------------------------------------
# The parts in use never exceed the rate together, whoever pauses, dies, loses the database or is late; ADR 28 has the
# proof. An entry is replaced only while the record is as it was read. Times are microseconds of this process's own clock.
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

    def saw(self, division: Division, asked_us: int, now_us: int) -> None:
        """The record as it was at some moment between the two."""
        if self._read and division.version < self._read[-1][1]:
            # A database of before: what is in use now it does not say. All of that has ended when this has.
            self._read.clear()
            self._seen.clear()
            self._wrote = False
            self._blind_until = now_us + SPENT_US
        self._read.append((asked_us, division.version))
        while len(self._read) > 1 and self._read[0][0] < asked_us - FRESH_US:
            self._read.popleft()
        self._seen = {
            name: self._seen[name] if self._seen.get(name, (None, 0))[0] == entry.identity else (entry.identity, now_us)
            for name, entry in division.entries.items()
        }
        mine = division.entries.get(self.name)
        self.replaced |= self._wrote and mine is not None and mine.process != self.process

    def propose(self, division: Division, owned: Collection[int], demand: Demand, now_us: int) -> Division | None:
        """The record with our entry anew, right after `saw`; None: we must not write, or own nothing.

        `owned` are partitions that the group has confirmed lately.
        """
        if self.replaced or not owned or now_us < self._blind_until:
            return None
        others = {name: entry for name, entry in division.entries.items() if name != self.name}
        others = {name: entry for name, entry in others.items() if not self._spent(name, now_us)}
        vouched = {name: entry for name, entry in others.items() if self._vouched(entry, now_us)}
        pool = self._pool(others, vouched, owned)
        claims = {name: (len(entry.partitions), entry.demand) for name, entry in vouched.items()}
        claims[self.name] = (len(owned), demand)
        fair = fair_share(max(pool, 0), self.rate, claims, self.name)
        share = max(0, min(fair, pool - sum(entry.share for entry in vouched.values())))
        mine = ShareEntry(self.process, division.version, share, tuple(sorted(owned)), demand)
        return Division(division.version + 1, {**others, self.name: mine})

    def wrote(self) -> None:
        """The proposal was written, or may have been."""
        self._wrote = True

    def left(self, division: Division) -> Division | None:
        """The record without us, who will send nothing any more; None: we are not in it."""
        mine = division.entries.get(self.name)
        if mine is None or mine.process != self.process:
            return None
        rest = {name: entry for name, entry in division.entries.items() if name != self.name}
        return Division(division.version + 1, rest)

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


# -- The part of this process; pure --------------------------------------------------------------------------
# Three threads meet here, each replacing what it alone writes: the polling one says what the group has given us, the
# that of the database what was granted, and the owner's asks what it may send.


@dataclass(frozen=True)
class Assigned:
    """What the group has given us: partitions, each since when without a break, in which generation.

    `confirmed_us`: a moment at which they were certainly ours; any later one is unknown.
    """

    since: Mapping[int, int] = field(default_factory=dict)
    generation: int = -1
    confirmed_us: int = 0

    def assigned(self, numbers: set[int], generation: int, before: Assigned, now_us: int) -> Assigned:
        """A join has ended. `before` is what we had last: nobody was between it and the generation after it."""
        kept = before.since if generation in (before.generation, before.generation + 1) else {}
        return replace(self, since={one: kept.get(one, now_us) for one in numbers}, generation=generation)


@dataclass(frozen=True, slots=True)
class Grant:
    """A part in millionths, and until when it holds. `said`: when we said what of us that others may still count on."""

    share: int = 0
    until_us: int = 0
    said: tuple[tuple[int, int], ...] = ()


class OutputShare:
    """The part as it is now. `sure_us`: for how long a confirmation of the group may be used."""

    def __init__(self, partitions: int, sure_us: int) -> None:
        self.partitions, self.sure_us = partitions, sure_us
        self.standing, self.grant = Assigned(), Grant()

    def at(self, now_us: int) -> int:
        """In millionths: the grant, and when it has ended the part of our partitions, or the least that we asked for."""
        grant = self.grant
        if now_us < grant.until_us:
            return grant.share
        return min([self._alone(now_us), *(share for said_us, share in grant.said if now_us < said_us + SURE_US)])

    def ask(self, share: int, now_us: int) -> None:
        """Before it is written: from now on no more than before, nor than this, whatever becomes of the question."""
        grant = self.grant
        said = tuple(one for one in grant.said if now_us < one[0] + SURE_US)
        self.grant = Grant(min(grant.share, share), grant.until_us, (*said, (now_us, share)))

    def granted(self, share: int, asked_us: int) -> None:
        """It stands in the record; `asked_us` is before that was read."""
        self.grant = replace(self.grant, share=share, until_us=asked_us + HOLDS_US)

    def _alone(self, now_us: int) -> int:
        """Only partitions that nobody else can count as theirs any more, nor anybody by their word."""
        held_us = self.sure_us + FRESH_US + HOLDS_US + SECOND_US
        held = sum(since + held_us <= now_us for since in self.standing.since.values())
        return held * PARTS // self.partitions
