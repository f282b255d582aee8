"""Processes that divide an output rate, and what happens to them: one broker, one record, pauses, deaths, lost answers."""

from __future__ import annotations

import random
from types import SimpleNamespace

from throttler.limits.output_rate import OutputLimiter
from throttler.limits.rate import RateWindow
from throttler.limits.shares import PARTS, Division, OutputShare
from throttler.messages import moment_of
from throttler.worker.database_sync import Sharing
from throttler.worker.owner import SteadyClock

PARTITIONS = 12
SECOND = 1_000_000
SESSION, HEARTBEAT = 10 * SECOND, 2 * SECOND
SURE = 5_500_000


class Part:
    """A part of the rate of all that a test sets."""

    def __init__(self, share=0):
        self.share = share

    def at(self, _now):
        return self.share


class Away(Exception):
    """The database does not answer, or its answer is lost."""


class Member:
    """A process: its real `Sharing`, and threads that run only while it is not stopped."""

    def __init__(self, world, name):
        self.world, self.name = world, name
        self.alive, self.busy = True, False
        self.stopped_until = self.away_until = self.deaf_until = 0
        self.generation = -1  # that it knows
        self.sent = self.answered = -1.0  # heartbeats, in seconds of its clock
        self.next_heartbeat = self.next_round = 0
        self.skew = world.random.randrange(10**9)
        clock = SteadyClock(lambda: (world.time + self.skew) * 1000, moment_of(0))
        output = OutputLimiter(RateWindow(1000, SECOND), OutputShare(PARTITIONS, SURE), clock.now())
        output.meter = SimpleNamespace(demand=())
        self.clock, self.output = clock, output
        self.sharing = Sharing(name, output, clock, self.read, self.write)
        self.sharing.group.heard = self.heard

    @property
    def runs(self):
        return self.alive and self.world.time >= self.stopped_until

    def heard(self):
        return self.answered if self.answered >= self.sent else float("-inf")

    def part(self):
        return self.output.share.at(self.clock.reading())

    # -- the database -------------------------------------------------------------------------------

    def read(self):
        self.world.pause(self)
        self._reach()
        found = self.world.record
        self.world.pause(self)
        return found

    def write(self, proposed):
        world = self.world
        world.pause(self)
        self._reach()
        fate = world.random.random()
        if fate < 0.05 * world.trouble:
            world.under_way.append((world.time + world.random.randrange(20 * SECOND), proposed))
            raise Away
        done = world.put(proposed)
        if fate < 0.1 * world.trouble:
            raise Away
        world.pause(self)
        return done

    def _reach(self):
        if not self.alive or self.world.time < self.away_until:
            raise Away

    # -- its threads --------------------------------------------------------------------------------

    def poll(self):
        """The client's thread: heartbeats, and what the group says."""
        world, now = self.world, self.world.time
        if now < self.deaf_until:
            return
        known = world.members.get(self.name) is self
        if known and now >= self.next_heartbeat:
            self.next_heartbeat = now + HEARTBEAT
            self.sent = self.answered = (now + self.skew) / SECOND
            world.heard[self.name] = now
        if not known and self.generation >= 0 and self.name in world.members:
            self.alive = False  # another process has the name
            return
        if not known or (world.rebalancing and self.name not in world.joined):
            self.sharing.group.released()
            self.sharing.group.released()
            world.join(self)
        elif not world.rebalancing and self.generation != world.generation:
            self.generation = world.generation
            self.sharing.group.assigned(world.given(self.name), self.generation)
            self.next_round = now

    def sync(self):
        if self.busy or self.world.time < self.next_round:
            return
        self.busy = True
        try:
            self.sharing.round()
        except Away:
            pass
        finally:
            self.busy = False
            self.next_round = self.world.time + SECOND


class World:
    def __init__(self, seed):
        self.random, self.trouble = random.Random(seed), 1.0
        self.time, self.depth = 0, 0
        self.record, self.under_way, self.last = Division(), [], []
        self.members, self.heard, self.joined, self.owners = {}, {}, set(), {}
        self.generation, self.rebalancing = 0, False
        self.processes = []
        self.worst = 0

    def start(self, name):
        self.processes.append(Member(self, name))
        return self.processes[-1]

    def put(self, proposed):
        if self.record.version != proposed.version - 1:
            return False
        self.record = proposed
        return True

    # -- the group ----------------------------------------------------------------------------------

    def join(self, member):
        known = member.name in self.members
        self.heard[member.name] = self.time
        if known and self.members[member.name] is not member and not self.rebalancing:
            self.members[member.name] = member  # a name that comes back has its partitions, in the same generation
            return
        self.members[member.name] = member
        if not self.rebalancing:
            self.rebalancing, self.joined = True, set()
        self.joined.add(member.name)

    def given(self, name):
        return {number for number, owner in self.owners.items() if owner == name}

    def coordinate(self):
        for name in [name for name in self.members if self.heard[name] + SESSION < self.time]:
            del self.members[name]
            self.joined.discard(name)
            if not self.rebalancing:
                self.rebalancing, self.joined = True, set()
        if self.rebalancing and self.joined >= self.members.keys():
            self.rebalancing = False
            self.generation += 1
            names = self.random.sample(sorted(self.members), len(self.members))
            self.owners = {number: names[number % len(names)] for number in range(PARTITIONS)} if names else {}

    def counts(self, member):
        """Whether the broker takes what this process sends now."""
        if self.members.get(member.name) is not member or not member.alive:
            return False
        return member.generation == self.generation or (self.rebalancing and member.name in self.joined)

    def parts(self):
        return {member.name: member.part() for member in self.processes if self.counts(member)}

    # -- time ---------------------------------------------------------------------------------------

    def pause(self, member):
        """Others go on while this one waits for the database, or does not run at all."""
        for _ in range(self.random.choice((0, 0, 0, 1, 3)) if self.trouble else 0):
            self.step()
        while not member.runs and member.alive:
            self.step()

    def step(self):
        self.time += self.random.randrange(1, 400_000)
        self.happen()
        self.coordinate()
        for at, proposed in self.under_way:
            if at <= self.time:
                self.put(proposed)
        self.under_way = [one for one in self.under_way if one[0] > self.time]
        for member in self.random.sample(self.processes, len(self.processes)):
            if member.runs:
                member.poll()
                self.look()
            if member.runs and self.depth < 4:
                self.depth += 1
                member.sync()
                self.depth -= 1
                self.look()

    def look(self):
        self.worst = max(self.worst, sum(self.parts().values()))
        assert self.worst <= PARTS, self.parts()

    def happen(self):
        if self.random.random() > 0.1 * self.trouble:
            return
        member = self.random.choice(self.processes)
        until = self.time + self.random.choice((2, 5, 15, 40)) * SECOND
        fate = self.random.randrange(6)
        if fate == 0:
            member.stopped_until = until
        elif fate == 1:
            member.away_until = until
        elif fate == 2:
            member.deaf_until = until
        elif fate == 3:
            member.output.meter.demand = ((self.random.randrange(10**6), self.random.randrange(1, 100)),)
        elif fate == 4:
            member.alive = self.random.random() < 0.5
        elif len(self.processes) < 20:
            self.start(self.random.choice("abcd"))
