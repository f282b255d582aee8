"""How long to wait before trying again: full jitter, pure."""

from __future__ import annotations

import random


def full_jitter(attempt: int, *, base: float, cap: float, fraction: float | None = None) -> float:
    """Seconds before attempt `attempt` (1 is the first retry): uniform in 0 … min(cap, base · 2^(attempt-1)).

    Full jitter is the variant with the fewest collisions in AWS's study of exponential backoff.
    `fraction` (0 … 1) replaces the random draw in tests.
    """
    ceiling = min(cap, base * 2 ** min(max(attempt - 1, 0), 62))
    return ceiling * (random.random() if fraction is None else fraction)  # noqa: S311 (no secret)
