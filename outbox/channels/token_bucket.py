"""The arithmetic of a channel's token bucket; its state is in ChannelState."""

from __future__ import annotations

from datetime import datetime, timedelta

# So many seconds of the rate may go at once, enough to send in small batches. Tokens are paid at the claim, not
# at the call: in any T seconds at most rate · T + (1 + workers) · capacity leave.
BURST_SECONDS = 0.1


def capacity(per_second: float) -> float:
    return max(1.0, per_second * BURST_SECONDS)


def refilled(tokens: float, since: datetime | None, now: datetime, per_second: float) -> float:
    """Tokens in the bucket now; one that was never used is full."""
    if since is None:
        return capacity(per_second)
    earned = max(0.0, (now - since).total_seconds()) * per_second
    return min(capacity(per_second), tokens + earned)


def when_full(tokens: float, now: datetime, per_second: float) -> datetime:
    """When to ask again: nine tenths of the time until the bucket is full, because asking takes time."""
    return now + timedelta(seconds=(capacity(per_second) - tokens) / per_second * 0.9)
