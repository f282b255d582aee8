"""Drains the backlogs: each lane at its rate, in the order of the input, from pages read ahead."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from django.db import close_old_connections, connection

from config.telemetry.logs import log
from throttler.customers.policy_cache import CustomerTerms
from throttler.engine.decisions import Decisions, reason_to_expire
from throttler.engine.partition import OwnedPartition
from throttler.lanes.state import LaneState
from throttler.limits.limiter import allowance, next_due, spend
from throttler.limits.scheduler import Scheduler
from throttler.overflow.store import LaneRange, OverflowRow, OverflowStore

# -- Gives what is due ---------------------------------------------------------------------------------------
Key = tuple[int, str]  # partition, customer
ROWS = 200  # of one page
COUNT = 0  # the limit of a range that is counted, not read: a long lane is, once, before its first page
AHEAD = 50  # rows in hand below which the next page is read
RETRY_US = 20_000  # for rows that are on their way, to the store or from it
AWAY_US = 500_000  # for a store that did not answer: thousands of lanes would ask it all the time
HELD_US = 1_000_000  # what is held may expire or be purged
LOOK_US = 60_000_000  # and so may what waits for a slow rate


@dataclass(frozen=True)
class Page:
    """What was asked, and how many rows the store has of it; None: it did not answer."""

    asked: LaneRange
    count: int | None
    rows: Sequence[OverflowRow] = ()  # none of a range that was to be counted


class Drain:
    """The lanes that wait. One thread; whoever reads `wanted()` from the store gives the pages to `take`.

    `parts` is the owner's own dictionary. `suspended` holds lanes of which the store has fewer rows than it was given:
    nothing of them leaves until they were read again from the input. `refused` holds lanes whose next message the broker
    never takes, as `poisoned` says by partition and offset: nothing of them leaves until that one is a letter.
    """

    def __init__(
        self, parts: dict[int, OwnedPartition], terms_of: Callable[[str], CustomerTerms], default_ttl_us: int
    ) -> None:
        self.parts, self.terms_of, self.default_ttl_us = parts, terms_of, default_ttl_us
        self.schedule: Scheduler[Key] = Scheduler()
        self.pages: dict[Key, deque[OverflowRow]] = {}
        # The range, and how many rows its page has to hold; None: nobody can tell.
        self.asked: dict[Key, tuple[LaneRange, int | None]] = {}
        self.suspended: dict[Key, tuple[int, int]] = {}  # how many rows there were, and how many there must be
        self.poisoned: dict[tuple[int, int], str] = {}
        self.refused: dict[Key, OverflowRow] = {}
        self._away_until = 0  # the store did not answer: nobody asks before
        self._counted: set[Key] = set()  # long lanes of which the store has every row, as far as was last asked
        self._wanted: list[LaneRange] = []

    def watch(self, part: OwnedPartition, lane: LaneState, now: int) -> None:
        """A lane has a backlog: look at it when its next message is due. Known ones keep their turn."""
        key = (part.number, lane.customer)
        if lane.backlog and key not in self.schedule:
            self._schedule(key, part, lane, now)

    def look_again(self, part: OwnedPartition, lane: LaneState, now: int) -> None:
        """The customer's terms changed: the lane may be due sooner, or later."""
        key = (part.number, lane.customer)
        if lane.backlog:
            self._schedule(key, part, lane, now)

    def forget(self, number: int) -> None:
        """The partition belongs to somebody else, or is restored."""
        known = self.pages.keys() | self.asked.keys() | self.suspended.keys() | self.refused.keys() | self._counted
        for key in [key for key in known if key[0] == number]:
            self._drop(key)

    def round(self, now: int, most: int, out: Decisions) -> None:
        """Let up to `most` due messages leave; a lane that is cut short keeps its place."""
        shares = self.schedule.due(now, most, lambda key: self._ready(key, now))
        for key, count in shares.items():
            part, lane = self.find(key)
            if part is None or lane is None or not lane.backlog:
                self._drop(key)
                continue
            self._give(key, part, lane, count, now, out)
            self._stop_before_poison(key)
            self._ask(key, part, lane, now)
            if not lane.backlog:
                self._drop(key)
            elif key not in self.schedule:
                self._schedule(key, part, lane, now)

    def wanted(self) -> Sequence[LaneRange]:
        """The pages to read now, each named once."""
        ranges, self._wanted = self._wanted, []
        return ranges

    def take(self, page: Page, now: int) -> None:
        """What the store has of a range, or that it did not answer."""
        key = (page.asked.partition, page.asked.customer_id)
        if self.asked.get(key, (None, 0))[0] is not page.asked:
            return  # the partition was given up meanwhile, and perhaps asks again
        _range, expected = self.asked.pop(key)
        _part, lane = self.find(key)
        if page.count is None:
            self.doubt()
            self._away_until = now + AWAY_US
        elif lane and lane.backlog and self._has_all(key, page.count, expected):
            if page.asked.limit == COUNT:
                self._counted.add(key)
            else:
                self.pages.setdefault(key, deque()).extend(page.rows)
            self.schedule.add(key, now, self.terms_of(lane.customer).weight)

    def doubt(self) -> None:
        """The store was away: it may come back from an older backup, with a gap in the middle of a lane."""
        self._counted.clear()

    def _has_all(self, key: Key, count: int, expected: int | None) -> bool:
        if expected is None or count >= expected:
            return True
        self.suspended[key] = count, expected
        self.pages.pop(key, None)  # some of it may be read again
        return False

    def resume(self, key: Key, now: int) -> None:
        """The rows of a lane are in the store again, as far as the input still has them."""
        self.suspended.pop(key, None)
        part, lane = self.find(key)
        if part and lane and lane.backlog:
            self._schedule(key, part, lane, now)

    def pass_over(self, key: Key, row: OverflowRow, now: int) -> tuple[OwnedPartition, LaneState] | None:
        """The refused message is a letter now, and its lane goes on behind it. None: not ours any more."""
        part, lane = self.find(key)
        if self.refused.get(key) is not row or part is None or lane is None:
            return None
        del self.refused[key]
        page = self.pages.get(key)
        if page and page[0] is row:
            page.popleft()
        lane.leave(row.offset)
        part.totals["refused"] += 1
        if lane.backlog:
            self._schedule(key, part, lane, now)
        else:
            self._drop(key)
        return part, lane

    def _stop_before_poison(self, key: Key) -> None:
        page = self.pages.get(key)
        if page and self.poisoned and (key[0], page[0].offset) in self.poisoned:
            self.refused[key] = page[0]

    def achievable_rate(self, key: Key) -> tuple[str, int, int]:
        """A lane that waits for its turn: customer, thousandths of a message a second that it could send, weight."""
        terms, (_part, lane) = self.terms_of(key[1]), self.find(key)
        if terms.held or lane is None:
            return key[1], 0, terms.weight
        shortest = terms.rates.windows[0]
        rate = shortest.limit * 1_000_000_000 // shortest.period_us
        return key[1], min(rate, lane.backlog * 1000), terms.weight

    def find(self, key: Key) -> tuple[OwnedPartition | None, LaneState | None]:
        """What this process still has of a lane."""
        part = self.parts.get(key[0])
        return part, part.lanes.get(key[1]) if part else None

    def _ready(self, key: Key, now: int) -> int:
        """How many of the rows in hand may leave now: sent at the rate, or expired at once."""
        page, terms = self.pages.get(key), self.terms_of(key[1])
        _part, lane = self.find(key)
        if not page or lane is None or key in self.suspended:
            return 0
        room = 0 if terms.held else allowance(terms.rates, lane.limiter, now, len(page))
        ready = 0
        for row in page:
            if self.poisoned and (key[0], row.offset) in self.poisoned:
                break
            if not self._reason(row, terms, now):
                if not room:
                    break
                room -= 1
            ready += 1
        return ready

    def _give(self, key: Key, part: OwnedPartition, lane: LaneState, count: int, now: int, out: Decisions) -> None:
        page, terms, sent = self.pages.get(key, deque()), self.terms_of(key[1]), 0
        for _ in range(count):
            row = page.popleft()
            lane.leave(row.offset)
            if reason := self._reason(row, terms, now):
                out.overdue.append((part, row, reason))
                part.totals["purged" if reason == "purged" else "expired"] += 1
            else:
                sent += 1
                out.drained.append((part, row))
                part.totals["drained"] += 1
        if count:
            spend(terms.rates, lane.limiter, now, sent)
            out.touch(part, lane)
        if page and lane.backlog:
            lane.reach(page[0].day)

    def _reason(self, row: OverflowRow, terms: CustomerTerms, now: int) -> str:
        return reason_to_expire(row.created_us, row.expires_us, terms, self.default_ttl_us, now)

    def _ask(self, key: Key, part: OwnedPartition, lane: LaneState, now: int) -> None:
        page = self.pages.get(key, ())
        if (
            now < self._away_until
            or not lane.backlog
            or len(page) >= AHEAD
            or key in self.asked
            or key in self.suspended
        ):
            return
        after = page[-1].offset if page else lane.drained
        upto = part.readable_upto(lane)
        if after < upto and lane.day:
            rest = self._stored(part, lane, upto)
            rest = None if rest is None else rest - len(page)
            counting = rest is not None and rest > ROWS and key not in self._counted
            limit = COUNT if counting else ROWS
            asked = LaneRange(part.number, lane.customer, part.topic_id, after, upto, lane.day, limit, lane.newest)
            self.asked[key] = asked, rest if counting or rest is None else min(ROWS, rest)
            self._wanted.append(asked)

    @staticmethod
    def _stored(part: OwnedPartition, lane: LaneState, upto: int) -> int | None:
        """How many rows of the lane the store was given up to here; None: nobody can tell."""
        if upto == lane.seen:
            return lane.backlog
        # After a start, rows that were decided then may still be missing until they have come again.
        return lane.backlog - lane.waits if part.read >= part.decided else None

    def _schedule(self, key: Key, part: OwnedPartition, lane: LaneState, now: int) -> None:
        terms = self.terms_of(lane.customer)
        due = None if terms.held else next_due(terms.rates, lane.limiter, now)
        when = now + HELD_US if due is None else min(due, now + LOOK_US)
        if not self.pages.get(key):
            self._ask(key, part, lane, now)
            when = max(when, now + RETRY_US, self._away_until)
        self.schedule.add(key, when, terms.weight)

    def _drop(self, key: Key) -> None:
        self._counted.discard(key)
        self.schedule.remove(key)
        self.pages.pop(key, None)
        self.asked.pop(key, None)
        self.suspended.pop(key, None)
        self.refused.pop(key, None)


# -- Reads pages on a thread of its own ----------------------------------------------------------------------
LANES = 100  # of one query
Answer = TypeVar("Answer")


class PageReader:
    """Takes ranges, gives pages in the order asked, one query at a time."""

    def __init__(self, store: OverflowStore) -> None:
        self.store, self._away = store, False
        self.pages: queue.SimpleQueue[Page] = queue.SimpleQueue()
        self._asked: queue.SimpleQueue[Sequence[LaneRange] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="throttler-pages", daemon=True)
        self._thread.start()

    def ask(self, ranges: Sequence[LaneRange]) -> None:
        """Each range of a lane once: answers are told apart by partition and customer."""
        for start in range(0, len(ranges), LANES):
            self._asked.put(ranges[start : start + LANES])

    def close(self) -> None:
        """End the thread after what it reads now, or a second; what was asked and not read stays unread."""
        while not self._asked.empty():
            self._asked.get()
        self._asked.put(None)
        self._thread.join(timeout=1.0)

    def _work(self) -> None:
        while (ranges := self._asked.get()) is not None:
            for page in self._answered(ranges):
                self.pages.put(page)
        connection.close()

    def _answered(self, ranges: Sequence[LaneRange]) -> Iterator[Page]:
        counted = [asked for asked in ranges if asked.limit == COUNT]
        read = [asked for asked in ranges if asked.limit != COUNT]
        numbers = self._ask(self.store.counts, counted) if counted else []
        yield from map(Page, counted, [None] * len(counted) if numbers is None else numbers)
        pages = self._ask(self.store.read, read) if read else {}
        for asked in read:
            rows = () if pages is None else pages.get((asked.partition, asked.customer_id), ())
            yield Page(asked, None if pages is None else len(rows), rows)

    def _ask(self, question: Callable[[Sequence[LaneRange]], Answer], ranges: Sequence[LaneRange]) -> Answer | None:
        try:
            close_old_connections()
            answer = question(ranges)
        except Exception as error:  # noqa: BLE001 (whatever the store says: its lanes ask again)
            if not self._away:
                log.warning("overflow_store_unavailable", error=str(error).strip()[:300])
            self._away = True
            connection.close()
            return None
        self._away = False
        return answer
