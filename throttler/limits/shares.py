"""This process's part of the output rate at any moment, and the limiter that spends it; pure, in ints.

Three threads meet here, each replacing what it alone writes: the polling one says what the group has given us, the
upkeep's what was granted, and the owner's asks what it may send.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from throttler.limits.demand import PARTS, SECOND_US, DemandMeter
from throttler.limits.division import FRESH_US, HOLDS_US, SURE_US, alone
from throttler.limits.rate import RateWindow

SAVED_US = 100_000  # a transaction and the one after it: what a slower one could have sent meanwhile is lost


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
        return alone(held, self.partitions)


class LastSecond:
    """How many messages the transactions of the last second carried; each counts for a second from the end of its own.

    By then the broker has given it its time. Ends are rounded up to milliseconds: a thousand are kept at most.
    """

    def __init__(self) -> None:
        self._over: deque[tuple[int, int]] = deque()  # (when, how many) count no more
        self._count = 0

    def add(self, count: int, now_us: int) -> None:
        over_us = -(-(now_us + SECOND_US) // 1000) * 1000
        if self._over and self._over[-1][0] >= over_us:
            over_us, before = self._over.pop()
            self._over.append((over_us, before + count))
        else:
            self._over.append((over_us, count))
        self._count += count

    def count(self, now_us: int) -> int:
        while self._over and self._over[0][0] <= now_us:
            self._count -= self._over.popleft()[1]
        return self._count


class OutputLimiter:
    """Spends a part of the output rate evenly: in any period of it no more than its limit.

    100 ms and one message are saved up, less what is in hand. A rate per minute, hour or day pays for them with a longer
    period; one per second would lose a tenth so, and is kept by what the last second carried. What is spent counts there
    from the decision until a second after its transaction has ended, so that this holds by the broker's times, too.
    Only a part that moves to others during a transaction can add what that carries, and several processes a message each.
    """

    def __init__(self, rate: RateWindow, share: OutputShare, now_us: int) -> None:
        self.rate, self.share, self.meter = rate, share, DemandMeter()
        self._now, self._part, self._credit = now_us, 0, 0
        self._in_hand, self._sent = 0, LastSecond()  # messages: not committed yet, and behind that
        self._cost = (rate.period_us + (SAVED_US if rate.period_us > SECOND_US else 0)) * PARTS

    def allowance(self, now_us: int) -> int:
        self._earn(now_us)
        return max(min(self._credit // self._cost, self._room(now_us)), 0)

    def _room(self, now_us: int) -> int:
        """In the second that ends now: a hundredth less where others have parts, as those move a little each second."""
        most = self.rate.limit * self._part
        most -= most // 100 if self._part < PARTS else 0
        return max(most // PARTS, bool(self._part)) - self._in_hand - self._sent.count(now_us)

    def spend(self, count: int) -> None:
        self._credit -= count * self._cost
        self._in_hand += count

    def settled(self, now_us: int) -> None:
        """What was spent has left, or never will: from now on as much may be saved up again."""
        self._earn(now_us)
        if self._in_hand:
            self._sent.add(self._in_hand, now_us)
        self._in_hand = 0

    def _earn(self, now_us: int) -> None:
        before, self._part = self._part, self.share.at(now_us)
        speed = self.rate.limit * min(before, self._part)  # what changed meanwhile may have changed at its beginning
        earned = max(now_us - self._now, 0) * speed
        self._now = now_us
        most = self._cost + SAVED_US * self.rate.limit * self._part
        self._credit = min(self._credit + earned, most - self._in_hand * self._cost)
