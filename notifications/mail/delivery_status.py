"""A mail's status: the strongest that was ever reported, in whatever order reports arrive."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

ACCEPTED, DEFERRED, DELIVERED = "accepted", "deferred", "delivered"
BOUNCED, REJECTED, COMPLAINED = "bounced", "rejected", "complained"
STATUSES = (ACCEPTED, DEFERRED, DELIVERED, BOUNCED, REJECTED, COMPLAINED)
SUPPRESSING = {BOUNCED: "hard_bounce", COMPLAINED: "complaint"}

# Of the three in the middle the one that happened last holds: a bounce is final unless the same recipient
# got the mail later, and a delivery can bounce later. A complaint is never taken back.
STRENGTH = {ACCEPTED: 0, DEFERRED: 1, DELIVERED: 2, REJECTED: 2, BOUNCED: 2, COMPLAINED: 3}
TIE = {DELIVERED: 0, REJECTED: 1, BOUNCED: 2}


class Standing(NamedTuple):
    """A status, and when the provider says it came to be."""

    status: str
    at: datetime

    @property
    def weight(self) -> tuple[int, float, int]:
        middle = STRENGTH[self.status] == 2
        return (STRENGTH[self.status], self.at.timestamp() if middle else 0.0, TIE.get(self.status, 0))


def stronger(first: Standing, second: Standing) -> Standing:
    """Which of two statuses holds. Neither the order of reports nor repeats change the result."""
    return max(first, second, key=lambda standing: (standing.weight, -standing.at.timestamp()))
