"""The token bucket of a channel: pure arithmetic; its row is in ChannelState."""

from __future__ import annotations

from datetime import datetime, timedelta

# So many seconds of the rate may go at once, enough to send in small batches. Tokens are paid at the claim, not
# at the call: in any T seconds at most rate · T + (1 + workers) · capacity leave.
BURST_SECONDS = 0.1


def capacity(per_second: float) -> float:
    return max(1.0, per_second * BURST_SECONDS)


def refilled(tokens: float, since: datetime | None, now: datetime, per_second: float) -> float:
    """What the bucket holds now; a bucket never used is full."""
    if since is None:
        return capacity(per_second)
    earned = max(0.0, (now - since).total_seconds()) * per_second
    return min(capacity(per_second), tokens + earned)


def when_full(tokens: float, now: datetime, per_second: float) -> datetime:
    """When it is worth asking again: with a full bucket, or in a tenth of a second less the time it takes to ask."""
    return now + timedelta(seconds=max(0.0, (capacity(per_second) - tokens) / per_second * 0.9))
