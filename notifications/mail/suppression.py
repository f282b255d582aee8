"""Addresses that get no mail any more: after a hard bounce, a complaint, or because an operator entered them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from django.db import models, transaction

from config.admin.levers import Operator
from config.database.clock import database_now
from config.database.upsert import Upsert
from config.environment import mailbox
from config.fields import IdentifierField
from config.payload import digest
from config.telemetry.logs import RowIds, log_committed
from config.telemetry.redaction import masked_error
from outbox.audit_log import actions


class SuppressionQuerySet(models.QuerySet["Suppression"]):
    """Queries of suppressed addresses."""

    def of(self, addresses: Iterable[str]) -> SuppressionQuerySet:
        return self.of_hashes(frozenset(hash_of(address) for address in addresses if address))

    def of_hashes(self, hashes: frozenset[str]) -> SuppressionQuerySet:
        return self.filter(address_hash__any=hashes)


SUBJECT = "notifications.suppression"


class Suppression(models.Model):
    """One address that must not be written to. Looked up by a hash that ignores case."""

    class Reason(models.TextChoices):
        HARD_BOUNCE = "hard_bounce", "bounced for good"
        COMPLAINT = "complaint", "complained"
        MANUAL = "manual", "entered by hand"

    address_hash = IdentifierField(max_length=32, unique=True, editable=False)
    address = models.CharField(max_length=254)
    reason = models.CharField(max_length=15, choices=Reason)
    note = models.CharField(max_length=300, default="", blank=True)
    since = models.DateTimeField()

    objects = SuppressionQuerySet.as_manager()

    class Meta:
        verbose_name = "suppressed address"
        verbose_name_plural = "suppressed addresses"
        indexes = [models.Index(fields=["-since"], name="suppression_recent")]
        permissions = [("lift_suppression", "Can lift suppressions")]

    def __str__(self) -> str:
        return mailbox.masked(self.address)


SUPPRESS = Upsert(
    Suppression,
    columns="address_hash address reason note",
    constants="since",
    key="address_hash",
    # A complaint replaces a bounce as the reason: whoever lifts the suppression must know.
    update={"reason": "CASE WHEN old.reason = 'complaint' THEN old.reason ELSE new.reason END"},
)


def hash_of(address: str) -> str:
    """The hash of an address in lower case: no provider tells apart addresses that differ in case only."""
    return digest(address.casefold().encode())


def reasons(addresses: Iterable[str]) -> dict[str, str]:
    """`{address: why}` of those that are suppressed, in one query."""
    hashes = {address: hash_of(address) for address in addresses if address}
    if not hashes:
        return {}
    known: dict[str, str] = dict(
        Suppression.objects.of_hashes(frozenset(hashes.values())).values_list("address_hash", "reason")
    )
    return {
        address: str(Suppression.Reason(known[address_hash]).label)
        for address, address_hash in hashes.items()
        if address_hash in known
    }


def suppress(reasons: Mapping[str, tuple[str, str]], now: datetime) -> None:
    """Write down `{address: (reason, note)}`; a known address keeps its time, and a complaint its reason."""
    by_hash = {
        hash_of(address): (hash_of(address), address, reason, note[:300]) for address, (reason, note) in reasons.items()
    }
    rows = [by_hash[key] for key in sorted(by_hash)]
    SUPPRESS.run(rows, {"since": now})
    if rows:
        log_committed("addresses_suppressed", addresses=len(rows), ids=RowIds(rows, address_hash=0, reason=2))


def add(addresses: Sequence[str], operator: Operator, reason: str) -> int:
    """Suppress by hand; returns how many were not suppressed before. ValueError names a bad address."""
    checked = {hash_of(address): address for address in map(mailbox.check, addresses)}
    with transaction.atomic():
        known = reasons(checked.values())
        fresh = [address for address in checked.values() if address not in known]
        suppress(dict.fromkeys(fresh, ("manual", reason)), database_now())
        _record(operator, "suppress", list(Suppression.objects.of(fresh).order_by("address_hash")), reason)
    return len(fresh)


def lift(keys: Sequence[int], operator: Operator, reason: str) -> int:
    """Allow mail to these again; returns how many were suppressed."""
    with transaction.atomic():
        rows = list(Suppression.objects.filter(pk__in=keys).order_by("address_hash").select_for_update())
        Suppression.objects.filter(pk__in=[row.pk for row in rows]).delete()
        _record(
            operator, "lift suppression", rows, reason, reason=[row.reason for row in rows],
            since=[row.since.isoformat() for row in rows], note=[masked_error(row.note) for row in rows],
        )  # fmt: skip
    return len(rows)


def _record(operator: Operator, verb: str, rows: Sequence[Suppression], why: str, **detail: object) -> None:
    """One action about all of them."""
    if rows:
        hashes = [row.address_hash for row in rows]
        subject = f"address {hashes[0]}" + (f" and {len(hashes) - 1} more" if len(hashes) > 1 else "")
        actions.record(
            operator, verb, subject, reason=why, rows=len(rows), subject_type=SUBJECT, subject_ids=[row.pk for row in rows],
            detail={"addresses": hashes, **detail},
        )  # fmt: skip
