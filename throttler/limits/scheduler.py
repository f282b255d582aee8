"""Which lanes have their turn: a heap of due times, and deficit round robin by weight among those that are due; pure."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Turn(Generic[Key]):
    """A lane in the schedule; `due_us` None: it stands in the round."""

    __slots__ = ("deficit", "due_us", "key", "weight")

    def __init__(self, key: Key, due_us: int | None, weight: int) -> None:
        self.key, self.due_us, self.weight, self.deficit = key, due_us, max(weight, 1), 0


class Scheduler(Generic[Key]):
    """A lane is in the schedule once: until its time, then in the round until it got what it wanted.

    Whoever `due` names with all it wanted is out: `add` says when it comes again.
    """

    def __init__(self) -> None:
        self._turns: dict[Key, Turn[Key]] = {}
        self._heap: list[tuple[int, int, Turn[Key]]] = []
        self._round: deque[Turn[Key]] = deque()
        self._count = 0
        self.due_weight = self.due_count = 0

    def __len__(self) -> int:
        return len(self._turns)

    def __contains__(self, key: Key) -> bool:
        return key in self._turns

    def add(self, key: Key, due_us: int, weight: int = 1) -> None:
        """At `due_us`; a lane that is in already moves there."""
        self.remove(key)
        turn = self._turns[key] = Turn(key, due_us, weight)
        self._count += 1
        heapq.heappush(self._heap, (due_us, self._count, turn))
        if len(self._heap) > 2 * len(self._turns) + 64:
            self._heap = [entry for entry in self._heap if self._stands(entry[2])]
            heapq.heapify(self._heap)

    def remove(self, key: Key) -> None:
        turn = self._turns.pop(key, None)
        if turn and turn.due_us is None:
            self.due_weight -= turn.weight
            self.due_count -= 1

    def waiting(self) -> Iterator[Key]:
        """Who stands in the round: `due_count` of them."""
        return (turn.key for turn in self._round if self._stands(turn))

    def next_due(self) -> int | None:
        """When the next one is due, 0 when one is waiting for its turn; None: nobody ever."""
        if self.due_weight:
            return 0
        while self._heap and not self._stands(self._heap[0][2]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now_us: int, limit: int, wanted: Callable[[Key], int]) -> dict[Key, int]:
        """How many each lane may send, `limit` together; `wanted` is asked once per lane and call.

        A lane named with 0 wanted nothing. One that the limit cut short keeps its place for the next call.
        """
        self._begin(now_us)
        shares: dict[Key, int] = {}
        asked: dict[Key, int] = {}
        while limit > 0 and self._round:
            turn = self._round.popleft()
            if not self._stands(turn):
                continue
            if turn.key not in asked:
                asked[turn.key] = wanted(turn.key)
                shares[turn.key] = 0
            limit -= self._serve(turn, limit, asked, shares)
        return shares

    def _serve(self, turn: Turn[Key], limit: int, asked: dict[Key, int], shares: dict[Key, int]) -> int:
        turn.deficit = turn.deficit or turn.weight
        count = min(turn.deficit, asked[turn.key], limit)
        turn.deficit -= count
        asked[turn.key] -= count
        shares[turn.key] += count
        if asked[turn.key] <= 0:
            self.remove(turn.key)
        elif turn.deficit:
            self._round.appendleft(turn)
        else:
            self._round.append(turn)
        return count

    def _begin(self, now_us: int) -> None:
        while self._heap and self._heap[0][0] <= now_us:
            turn = heapq.heappop(self._heap)[2]
            if self._stands(turn):
                turn.due_us = None
                self.due_weight += turn.weight
                self.due_count += 1
                self._round.append(turn)

    def _stands(self, turn: Turn[Key]) -> bool:
        return self._turns.get(turn.key) is turn
