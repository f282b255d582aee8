"""The limiter that spends this owner's part of the rate of all. Pure."""

from __future__ import annotations

from collections import deque

from throttler.limits.rate import RateWindow
from throttler.limits.shares import PARTS, SECOND_US, DemandMeter, OutputShare

SAVED_US = 100_000  # a transaction and the one after it: what a slower one could have sent meanwhile is lost


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
