"""The interface of an overflow store: rows are stored again without harm, and read from a lane's watermark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date

LaneRows = dict[tuple[int, str], list["OverflowRow"]]


@dataclass(frozen=True, slots=True)
class OverflowRow:
    """One message over the rate. Times are microseconds since 1970.

    `headers` are JSON bytes of [[name, base64 value], …], or empty; `expires_us` is 0 for a message that takes its
    customer's TTL when it is judged.
    """

    partition: int
    customer_id: str
    topic_id: str
    offset: int
    day: date
    payload: bytes
    headers: bytes
    created_us: int
    expires_us: int
    notification_id: str


@dataclass(frozen=True, slots=True)
class LaneRange:
    """Rows of a lane in (drained, upto], stored under `day` or later; at most `limit`, oldest first.

    `newest`: the last day that any was stored under, where it is known: later than tomorrow once a clock was ahead.
    """

    partition: int
    customer_id: str
    topic_id: str
    drained: int
    upto: int
    day: date
    limit: int
    newest: date | None = None


class OverflowStore(ABC):
    """Where messages over the rate wait. Errors are those of the database beneath."""

    in_database = True  # False: beside the relational database, which may be away while rows are stored and read

    @abstractmethod
    def ensure(self) -> list[str]:
        """The statements that make the store, each of which may be repeated; none where `migrate` makes it."""

    def create(self) -> None:  # noqa: B027 (`migrate` makes the other one)
        """Run what `ensure` lists."""

    def diagnose(self) -> Iterator[tuple[str, bool, str]]:
        """What `doctor` says about it: name, whether it is right, what was seen. Raises nothing."""
        yield from ()

    def close(self) -> None:  # noqa: B027 (Django closes its own connections)
        """Give its connections back; the next request opens them again."""

    @abstractmethod
    def store(self, rows: Sequence[OverflowRow]) -> None:
        """Insert rows; known ones are left alone. A row of a day that is gone goes to the oldest day there is."""

    @abstractmethod
    def read(self, ranges: Sequence[LaneRange]) -> LaneRows:
        """The rows of each lane by (partition, customer), each offset once; a lane without rows has an empty list."""

    @abstractmethod
    def count(self, lane: LaneRange) -> int:
        """Distinct offsets in (drained, upto], whatever the limit."""

    def counts(self, lanes: Sequence[LaneRange]) -> list[int]:
        """`count` of each lane; each is named once."""
        return [self.count(lane) for lane in lanes]

    @abstractmethod
    def oldest_day(self) -> date | None:
        """The first day that rows can be stored under; None when every day can."""

    def searched(self, limit: int) -> int | None:
        """How many rows of a lane `find` looks at, in pages of `limit`; None: all, by an index."""
        return PAGES * limit

    def find(self, lane: LaneRange, notification_id: str) -> OverflowRow | None:
        """The first row of a lane with this notification id, for people: in pages of `lane.limit`, PAGES at most."""
        for _ in range(PAGES):
            rows = self.read([lane])[lane.partition, lane.customer_id]
            match = next((row for row in rows if row.notification_id == notification_id), None)
            if match or len(rows) < lane.limit:
                return match
            lane = replace(lane, drained=rows[-1].offset)
        return None


PAGES = 50  # of a search
LAST_OFFSET = 2**63 - 1


def each_offset_once(rows: Iterable[OverflowRow]) -> list[OverflowRow]:
    """Rows in the order of their offsets; of one stored under two days the older stays."""
    by_offset: dict[int, OverflowRow] = {}
    for row in sorted(rows, key=lambda row: (row.offset, row.day)):
        by_offset.setdefault(row.offset, row)
    return list(by_offset.values())
