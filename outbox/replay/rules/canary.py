"""The canary: which few letters of a batch go first. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

MOST = 10
WHOLE = 100  # eligible letters from which on the canary has its full size

Letter = TypeVar("Letter")


def size_of(eligible: int) -> int:
    """Ten letters; of fewer than a hundred a tenth, at least one."""
    return MOST if eligible >= WHOLE else min(eligible, max(1, eligible // 10))


def choose(letters: Iterable[tuple[Letter, str]], total: int, size: int) -> list[Letter]:
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
