"""The stop rule: the last hundred verdicts of a batch, and when they are too bad to go on. Pure."""

from __future__ import annotations

from collections.abc import Iterable

SIZE = 100  # verdicts that are remembered
FIRST = 20  # verdicts before the rule judges
PERCENT = 5.0
GOOD, BAD = ".", "x"


def add(ring: str, verdicts: Iterable[bool], percent: float = PERCENT) -> tuple[str, bool]:
    """The ring with these verdicts behind it, and whether the rule was broken after any of them."""
    broken = False
    for good in verdicts:
        ring = (ring + (GOOD if good else BAD))[-SIZE:]
        broken = broken or breaks(ring, percent)
    return ring, broken


def breaks(ring: str, percent: float = PERCENT) -> bool:
    """Whether more than `percent` of a ring failed, from the twentieth verdict on."""
    return len(ring) >= FIRST and share(ring) > percent


def share(ring: str) -> float:
    """Percent that failed."""
    return 100 * ring.count(BAD) / len(ring) if ring else 0.0
