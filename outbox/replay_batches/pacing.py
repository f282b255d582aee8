"""How a batch proceeds: which letters go first (canary), how fast it goes, when it stops. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

# -- The canary: which few letters of a batch go first. Pure -------------------------------------------------
CANARY_MOST = 10
CANARY_WHOLE = 100  # eligible letters from which on the canary has its full size

Letter = TypeVar("Letter")


def canary_size(eligible: int) -> int:
    """Ten letters; of fewer than a hundred a tenth, at least one."""
    return CANARY_MOST if eligible >= CANARY_WHOLE else min(eligible, max(1, eligible // 10))


def choose_canary(letters: Iterable[tuple[Letter, str]], total: int, size: int) -> list[Letter]:
    """`size` of `total` (letter, business key) pairs, oldest first, spread over them.

    Each is the oldest of its key: a later one must not go before an earlier one of the same order. Letters
    without a key stand alone. Fewer come back where there are fewer keys.
    """
    seen: set[int] = set()
    chosen: list[Letter] = []
    spare: list[Letter] = []  # heads that came before their turn, in case later stretches have none
    for index, (letter, key) in enumerate(letters):
        if key:
            if (mark := hash(key)) in seen:
                continue
            seen.add(mark)
        if len(chosen) < size and index * size >= len(chosen) * total:
            chosen.append(letter)
        elif len(spare) < size:
            spare.append(letter)
    return [*chosen, *spare[: size - len(chosen)]]


# -- How fast a batch goes: its rate with the ramp, its tokens, its window. Pure: the time is passed in ------
RAMP = timedelta(seconds=30)
DEFAULT_RATE = 50.0  # letters a second, where an effect is awaited and its channel names no rate
LEAST_RATE, MOST_RATE = 0.01, 100_000.0
WINDOW_SECONDS, LEAST_WINDOW, MOST_WINDOW = 10.0, 50, 500
FIRST_CHUNK = 20  # letters; what goes wrong with all of them goes wrong with few
BUNCH = 0.2  # seconds: a few letters at once cost less than one at a time


def rate_at(rate: float, ramp_from: datetime | None, now: datetime) -> float:
    """Letters a second at `now`: from 1 up to `rate` within the ramp; at once where there is none."""
    if ramp_from is None:
        return rate
    return min(rate, max(1.0, rate * ((now - ramp_from) / RAMP)))


def tokens_at(tokens: float, since: datetime | None, rate: float, now: datetime) -> float:
    """Letters that may be taken now: what is left, and what the time since has brought; at most a second's worth."""
    if since is None:
        return 1.0
    seconds = max(0.0, (now - since).total_seconds())
    return min(tokens + seconds * rate, max(1.0, rate))


def bunch(rate: float, chunk: int) -> int:
    """The tokens that are worth a transaction."""
    return max(1, min(chunk, int(rate * BUNCH)))


def seconds_until(wanted: float, tokens: float, rate: float) -> float:
    """How long until there are `wanted` tokens."""
    return max(0.0, (wanted - tokens) / rate)


def window_of(rate: float | None) -> int:
    """Letters that may be taken back and not judged: ten seconds of the rate, between 50 and 500."""
    return MOST_WINDOW if rate is None else int(min(MOST_WINDOW, max(LEAST_WINDOW, rate * WINDOW_SECONDS)))


class Speed:
    """How many verdicts come in a second, by those of the last ten seconds."""

    def __init__(self, at: float) -> None:
        self.since = at
        self.judged: deque[tuple[float, int]] = deque()

    def add(self, number: int, at: float) -> None:
        self.judged.append((at, number))

    def window_at(self, at: float) -> int:
        """Letters that ten seconds of it judge, between 50 and 500: live traffic waits behind those that are out."""
        while self.judged and self.judged[0][0] <= at - WINDOW_SECONDS:
            self.judged.popleft()
        seconds = min(WINDOW_SECONDS, max(1.0, at - self.since))
        return window_of(sum(number for _, number in self.judged) / seconds)


def chunk_of(taken: int, most: int) -> int:
    """Letters of the next transaction: few at first, then as many as were taken before."""
    return min(most, max(FIRST_CHUNK, taken))


# -- The measured rate: how many had their turn at a few moments of the last minute. Pure --------------------
Mark = Sequence[float]  # (Unix time, letters whose turn had come)
MEASURED = 60.0  # seconds that a measurement looks back
BETWEEN_MARKS = 5.0


def add_mark(marks: Sequence[Mark], turns: int, at: float) -> Sequence[Mark]:
    """The marks of the last minute, with this one where the last is five seconds old; at most thirteen."""
    if marks and at - marks[-1][0] < BETWEEN_MARKS:
        return marks
    return [*(mark for mark in marks if mark[0] >= at - MEASURED), [at, turns]]


def measured_rate(marks: Sequence[Mark], turns: int, at: float) -> float:
    """Letters a second since the first mark of the last minute; 0 where nothing has gone, or too little to know."""
    since, before = next((mark for mark in marks if mark[0] >= at - MEASURED), (at, turns))
    seconds = at - since
    return (turns - before) / seconds if seconds >= BETWEEN_MARKS else 0.0


# -- The stop rule: the last hundred verdicts of a batch, and when they are too bad to go on. Pure -----------
STOP_WINDOW = 100  # verdicts that are remembered
STOP_FIRST = 20  # verdicts before the rule judges
STOP_PERCENT = 5.0
GOOD, BAD = ".", "x"


def add_verdicts(ring: str, verdicts: Iterable[bool], percent: float = STOP_PERCENT) -> tuple[str, bool]:
    """The ring with these verdicts behind it, and whether the rule was broken after any of them."""
    broken = False
    for good in verdicts:
        ring = (ring + (GOOD if good else BAD))[-STOP_WINDOW:]
        broken = broken or breaks(ring, percent)
    return ring, broken


def breaks(ring: str, percent: float = STOP_PERCENT) -> bool:
    """Whether more than `percent` of a ring failed, from the twentieth verdict on."""
    return len(ring) >= STOP_FIRST and share_of_bad(ring) > percent


def share_of_bad(ring: str) -> float:
    """Percent that failed."""
    return 100 * ring.count(BAD) / len(ring) if ring else 0.0
