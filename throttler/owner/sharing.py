"""Divides the output rate with the other owners: asks the record for our part, each second."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from config.telemetry import metrics
from throttler.lanes import division
from throttler.limits.demand import PARTS
from throttler.limits.division import Divider, Division
from throttler.limits.shares import Assigned, OutputLimiter, OutputShare
from throttler.live.clock import SteadyClock

TRIES = 5  # to be the next writer; then in a second
NEVER = float("-inf")


class GroupStanding:
    """Told by the polling thread what the group has given us; says what we may claim of it."""

    def __init__(self, share: OutputShare, clock: SteadyClock) -> None:
        self.share, self.clock = share, clock
        self.heard: Callable[[], float] = lambda: NEVER  # when the group answered last, by the monotonic clock
        self._before, self._heard_us = Assigned(), 0
        self.released()

    def released(self) -> None:
        """Before we join, and after all was taken: from the next join on everything is ours that it gives."""
        if self.share.standing.since:
            self._before = self.share.standing
        self.share.standing = Assigned(confirmed_us=self.clock.reading())

    def assigned(self, numbers: set[int], generation: int) -> None:
        joined = self.share.standing
        self.share.standing = joined.assigned(numbers, generation, self._before, self.clock.reading())

    def confirmed(self) -> Assigned | None:
        """Our partitions, if the group has confirmed lately that they are ours."""
        heard = self.heard()  # before the partitions: they are those of then, or of a join that ended later
        standing = self.share.standing
        if heard > NEVER:
            self._heard_us = max(self._heard_us, self.clock.of(heard))
        confirmed_us = max(standing.confirmed_us, self._heard_us)
        lately = self.clock.reading() < confirmed_us + self.share.sure_us
        return standing if standing.since and lately else None


class Sharing:
    """For the upkeep's thread. A database that does not answer leaves us what we have, for as long as it holds."""

    def __init__(
        self, name: str, output: OutputLimiter, clock: SteadyClock,
        read: Callable[[], Division] = division.read, write: Callable[[Division], bool] = division.write,
    ) -> None:  # fmt: skip
        self.share, self.meter, self.clock, self.read, self.write = output.share, output.meter, clock, read, write
        self.group, rate = GroupStanding(output.share, clock), output.rate
        thousandths = rate.limit * 1_000_000_000 // rate.period_us
        self.divider = Divider(name, uuid4().hex, output.share.partitions, max(thousandths, 1))

    def round(self) -> None:
        """Look at the record, and ask for our part of what is free."""
        for _ in range(TRIES):
            asked = self.clock.reading()
            found = self.read()
            self.divider.saw(found, asked, self.clock.reading())
            proposed = self._proposal(found)
            if proposed is None:
                return
            part = proposed.entries[self.divider.name].share
            self.share.ask(part, self.clock.reading())
            self.divider.wrote()
            if self.write(proposed):
                self.share.granted(part, asked)
                metrics.set_own(metrics.THROTTLER_OUTPUT_SHARE, part / PARTS)
                return

    def leave(self) -> None:
        """We send nothing any more: the others may have our part at once."""
        for _ in range(TRIES):
            left = self.divider.left(self.read())
            if left is None or self.write(left):
                return

    def _proposal(self, found: Division) -> Division | None:
        standing = self.group.confirmed()
        if standing is None:
            return None
        return self.divider.propose(found, standing.since.keys(), self.meter.demand, self.clock.reading())
