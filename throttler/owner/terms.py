"""What each customer may send, as last known: the database may be away for hours."""

from __future__ import annotations

from collections.abc import Mapping, Set

from throttler.customers.rates_poll import CustomerTerms
from throttler.limits.rate import Rates


class KnownTerms:
    """Terms by customer; who has no row sends at the default rate. Nobody's terms are known before the first poll."""

    def __init__(self, default: Rates) -> None:
        self.default = CustomerTerms(default, None, 1, 0, False)
        self._of: dict[str, CustomerTerms] = {}

    def of(self, customer: str) -> CustomerTerms:
        return self._of.get(customer, self.default)

    def learn(self, polled: Mapping[str, CustomerTerms]) -> Set[str]:
        """Take up what a poll brought; returns whose terms are others now."""
        changed = {customer for customer, terms in polled.items() if self.of(customer) != terms}
        self._of.update(polled)
        return changed
