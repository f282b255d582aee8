"""What each customer may send, as last read: all at first, then what changed; kept while the database is away."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from django.conf import settings

from config.database.clock import database_now
from config.telemetry.logs import log
from throttler.customers.models import Customer
from throttler.limits.rate import BadRates, Rates, parse_rates
from throttler.messages import microseconds

# -- What changed in the database ----------------------------------------------------------------------------
# A transaction may commit after others that began later: what it changed is older than what was read already.
OVERLAP = timedelta(seconds=30)
COLUMNS = ("customer_id", "rates", "burst", "ttl_seconds", "weight", "purge_before", "held")
CHUNK = 5000


@dataclass(frozen=True, slots=True)
class CustomerTerms:
    """What a customer may send; `ttl_us` None: the default; `purge_before_us` since 1970, 0: never purged."""

    rates: Rates
    ttl_us: int | None
    weight: int
    purge_before_us: int
    held: bool


def changed_terms(since: datetime | None) -> tuple[dict[str, CustomerTerms], datetime]:
    """Terms by customer id, and the moment to ask from next time (the database's clock).

    `since` None: of all customers. Each change is returned for 30 seconds, so most come more than once.
    """
    asked = database_now()
    rows = Customer.objects.all() if since is None else Customer.objects.changed_since(since - OVERLAP)
    customers = rows.values_list(*COLUMNS).iterator(CHUNK)
    return {customer_id: _terms(customer_id, *values) for customer_id, *values in customers}, asked


def _terms(
    customer_id: str,
    text: str,
    burst: int | None,
    ttl_seconds: int | None,
    weight: int,
    purge_before: datetime | None,
    held: bool,
) -> CustomerTerms:
    try:
        rates = _parsed(text, burst)
    except BadRates as error:
        # Only a statement by hand writes such a row: one customer's row must not stop the others.
        log.warning("bad_rates", customer_id=customer_id, error=str(error))
        rates = _parsed(settings.THROTTLER_DEFAULT_RATE, None)
    ttl_us = None if ttl_seconds is None else ttl_seconds * 1_000_000
    purged = 0 if purge_before is None else microseconds(purge_before)
    return CustomerTerms(rates, ttl_us, max(1, weight), purged, held or rates.held)


_parsed = lru_cache(maxsize=10_000)(parse_rates)


# -- What each may send, as last known -----------------------------------------------------------------------
class PolicyCache:
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
