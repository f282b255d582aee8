"""Visits every state that a model can come to, and the shortest way to one that breaks a promise."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

State = TypeVar("State", bound=Hashable)


class Found(NamedTuple):
    """How many states there are, which promise breaks (empty: none), and the steps that lead there."""

    states: int
    broken: str
    way: Sequence[str]


@dataclass(frozen=True)
class Model(Generic[State]):
    """What a flow may do from each state. A promise that a step breaks is named by `broken`; from every state `done` must be reachable.

    `guards` says of each guard what it keeps; `steps` is given those that are in place. `bounds` ends what would go on for
    ever: a state beyond them has no steps, and nothing is asked of it.
    """

    name: str
    first: State
    guards: Mapping[str, str]
    steps: Callable[[State, frozenset[str]], Iterator[tuple[str, State]]]
    broken: Callable[[State, State], str]  # by the step from one to the other
    done: Callable[[State], bool]
    bounds: Callable[[State], bool] = lambda _state: False
    outside: Mapping[str, str] = field(
        default_factory=dict
    )  # guards that serve a promise which the model does not know

    def explore(self, without: Iterable[str] = ()) -> Found:
        """Breadth first, so that the way is the shortest."""
        guards = frozenset(self.guards) - frozenset(without)
        came: dict[State, tuple[State | None, str]] = {self.first: (None, "")}
        before: dict[State, list[State]] = {}
        queue, ends = deque([self.first]), deque[State]()
        while queue:
            state = queue.popleft()
            if self.bounds(state) or self.done(state):
                ends.append(state)
            if self.bounds(state):
                continue
            for step, following in self.steps(state, guards):
                before.setdefault(following, []).append(state)
                if following not in came:
                    came[following] = (state, step)
                    queue.append(following)
                if broken := self.broken(state, following):
                    return Found(len(came), broken, [*_way(came, state), step])
        return self._stuck(came, before, ends)

    def _stuck(
        self, came: dict[State, tuple[State | None, str]], before: dict[State, list[State]], ends: deque[State]
    ) -> Found:
        """From which state nothing leads to the end any more."""
        reaching = set(ends)
        while ends:
            for state in before.get(ends.popleft(), ()):
                if state not in reaching:
                    reaching.add(state)
                    ends.append(state)
        lost = next((state for state in came if state not in reaching), None)
        return Found(len(came), "", []) if lost is None else Found(len(came), "stuck", _way(came, lost))


def _way(came: Mapping[State, tuple[State | None, str]], state: State) -> list[str]:
    steps: list[str] = []
    at: State | None = state
    while at is not None:
        at, step = came[at]
        steps.insert(0, step)
    return steps[1:]
