"""What must hold of batches: status, place and time agree, each was counted, and each has the bytes it was frozen with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db.models import Q

from buffer.events.models import Batch, BufferedEvent
from buffer.events.queries import BatchQuerySet
from buffer.flush.freeze import content_hash
from buffer.flush.redelivery import STEP
from buffer.retention import BATCHES_SWEPT
from config.database.chunks import by_key
from config.flows import Check
from outbox.bookkeeping import counters
from outbox.bookkeeping.verify import OFFENDERS
from outbox.letters.models import BurialKey, DeadLetter

CHUNK = 100  # a batch has up to a megabyte
KEYS = 500


def checks(stream: str) -> Iterator[Check]:
    """Those of one stream; in the caller's snapshot."""
    batches = Batch.objects.of_streams([stream])
    yield _status_fits(stream, batches)
    yield _sent_was_counted(stream, batches)
    yield _refused_has_a_letter(stream, batches)
    yield _open_letters_are_parked(stream, batches)
    yield _discarded_with_its_orders(stream, batches)


def _status_fits(stream: str, batches: BatchQuerySet) -> Check:
    """Place and time exactly when it was sent; a lease only while it is to be sent."""
    nowhere = Q(output_partition=None) | Q(output_offset=None) | Q(sent_at=None)
    somewhere = Q(output_partition__isnull=False) | Q(output_offset__isnull=False) | Q(sent_at__isnull=False)
    wrong = batches.filter(
        Q(nowhere, status="sent")
        | Q(somewhere, status__in=["claimed", "parked", "discarded"])
        | Q(lease_token__isnull=False, status__in=["sent", "parked", "discarded"])
    )
    rows = wrong.order_by("pk").values("batch_id", "status", "output_offset", "sent_at")[:OFFENDERS]
    return Check(f"{stream}: every sent batch, and no other, knows where it went", rows=list(rows))


def _sent_was_counted(stream: str, batches: BatchQuerySet) -> Check:
    """As many as flushers have marked; which one was changed by hand, the other checks may tell."""
    totals = counters.totals(stream)
    there = batches.sent().count() + totals.get(BATCHES_SWEPT, 0)
    return Check(f"{stream}: batches sent = sent batches + swept by retention", totals.get("batches_sent", 0), there)


def _refused_has_a_letter(stream: str, batches: BatchQuerySet) -> Check:
    """A batch is parked or discarded only after the broker refused it; burial keys are kept for ever."""
    refused = batches.filter(status__in=["parked", "discarded"]).values_list("pk", "status")
    lost: list[Any] = []
    for chunk in by_key(refused, KEYS):
        letters = BurialKey.objects.filter(group="", topic_id__in=[str(pk) for pk, _ in chunk])
        known = set(letters.values_list("topic_id", flat=True))
        lost += [{"batch": str(pk), "status": status} for pk, status in chunk if str(pk) not in known]
    return Check(f"{stream}: no batch is refused or discarded without a letter", rows=lost[:OFFENDERS])


def _open_letters_are_parked(stream: str, batches: BatchQuerySet) -> Check:
    """A refused batch is published again only after its letter was taken back."""
    early: list[Any] = []
    for chunk in by_key(batches.claimed().values_list("pk"), KEYS):
        letters = DeadLetter.objects.open().filter(step=STEP, business_key__in=[str(pk) for (pk,) in chunk])
        early += letters.values_list("business_key", flat=True)
    return Check(f"{stream}: no batch waits whose letter is open", rows=sorted(early)[:OFFENDERS])


def _discarded_with_its_orders(stream: str, batches: BatchQuerySet) -> Check:
    """An order whose batch is discarded would read as sent."""
    discarded = batches.filter(status="discarded")
    orders = BufferedEvent.objects.of_stream(stream).in_batches(discarded) if discarded.exists() else None
    rows = [] if orders is None else list(orders.values("order_id", "location_id", "batch_id")[:OFFENDERS])
    return Check(f"{stream}: a batch is discarded with its orders", rows=rows)


def every_batch_is_as_it_was_frozen() -> Check:
    """Those cut before there was a digest are left out."""
    frozen = Batch.objects.exclude(content_hash="").values_list("pk", "content_hash", "payload", "headers")
    changed = [
        {"batch": str(pk)}
        for chunk in by_key(frozen, CHUNK)
        for pk, known, payload, headers in chunk
        if content_hash(payload, headers) != known
    ]
    return Check("buffer: every batch has the bytes that were frozen", rows=changed[:OFFENDERS])
