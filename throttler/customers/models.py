"""The table of customers: at what rate each may send, and since when they are held or purged; its queries."""

from __future__ import annotations

from datetime import datetime
from typing import NoReturn

from django.db import models
from django.db.models import ProtectedError

from config.fields import IdentifierField
from throttler.limits.rate import BadRates, Rates, default_rates, parse_rates

# -- Queries for customers -----------------------------------------------------------------------------------
# Owners poll what changed, and a row that is gone changes no more: they would keep its terms until they start again.
KEPT = "Customers are not deleted: set their rate and lifetime to the defaults instead."
SEEN = ("rates", "burst", "ttl_seconds", "weight", "held", "purge_before", "updated_at")


class CustomerQuerySet(models.QuerySet):
    def changed_since(self, moment: datetime) -> CustomerQuerySet:
        return self.filter(updated_at__gte=moment)

    def delete(self) -> NoReturn:
        raise ProtectedError(KEPT, set())

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]

    def still_as(self, seen: models.Model) -> CustomerQuerySet:
        """The row of `seen`, unless somebody changed it since."""
        state: dict[str, object] = {name: getattr(seen, name) for name in SEEN}
        return self.filter(pk=seen.pk, **state)

    def outliving(self, seconds: int) -> CustomerQuerySet:
        """Whose messages live longer than this."""
        return self.filter(ttl_seconds__gt=seconds)

    def held(self) -> CustomerQuerySet:
        return self.filter(models.Q(held=True) | models.Q(rates="0/s"))


class Customer(models.Model):
    """What a customer may send; who has no row sends at THROTTLER_DEFAULT_RATE.

    Owners poll what changed: every statement that changes a row moves `updated_at`.
    """

    customer_id = IdentifierField(primary_key=True)
    rates = models.CharField(max_length=200, help_text="Windows, all of which hold: 20/s;10000/day. 0/s is hold.")
    burst = models.IntegerField(
        null=True, blank=True, help_text="Of the shortest window; empty: one second's worth, at least 1."
    )
    ttl_seconds = models.IntegerField(null=True, blank=True, help_text="Empty: THROTTLER_TTL_SECONDS.")
    weight = models.IntegerField(default=1, help_text="Share of THROTTLER_OUTPUT_RATE, beside others that wait.")
    held = models.BooleanField(default=False, help_text="Everything is buffered, nothing leaves.")
    purge_before = models.DateTimeField(null=True, help_text="Buffered messages older than this are given up.")
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    objects = CustomerQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["updated_at"], name="customer_changed")]
        permissions = [
            ("rate_customer", "Can change rate and lifetime of customers"),
            ("hold_customer", "Can hold and resume customers"),
            ("purge_customer", "Can purge what a customer has buffered"),
        ]

    @property
    def rates_set(self) -> Rates:
        """What `rates` and `burst` say; the default where a statement by hand wrote nonsense."""
        try:
            return parse_rates(self.rates, self.burst)
        except BadRates:
            return default_rates()

    @property
    def allowed(self) -> Rates:
        """What may leave; no window: held."""
        return Rates((), self.rates_set.burst) if self.held else self.rates_set

    def delete(self, *args: object, **kwargs: object) -> NoReturn:
        raise ProtectedError(KEPT, {self})

    def __str__(self) -> str:
        return self.customer_id
