"""Letters of refused batches: the same batch is published again, with the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.urls import reverse

from buffer.events.models import Batch, BufferedEvent
from config.redelivery import Effect, Judgement, Refusal
from config.telemetry.logs import listed, log_committed
from outbox.bookkeeping import counters
from outbox.letters.models import DeadLetter
from outbox.letters.redelivery import would_refuse

STEP = "publish"
NOT_PARKED = "the batch is no longer parked"
Status = Batch.Status


def judge(letters: Sequence[DeadLetter]) -> dict[UUID, Judgement]:
    parked = set(Batch.objects.parked().filter(pk__in=_ids(letters)).values_list("pk", flat=True))
    again = Judgement(True, "Its batch is published again.", "The broker refuses it until its limit is raised.", "warn")
    return {letter.pk: again if batch_of(letter) in parked else would_refuse(NOT_PARKED) for letter in letters}


def take_back(letters: Sequence[DeadLetter]) -> dict[UUID, Effect]:
    """Free the batches, in the caller's transaction."""
    if not letters:
        return {}
    rows = Batch.objects.parked().filter(pk__in=_ids(letters))
    parked = set(rows.order_by("pk").select_for_update().values_list("pk", flat=True))
    Batch.objects.parked().filter(pk__in=parked).put(Status.CLAIMED)
    if parked:
        log_committed("batches_freed", batches=len(parked), **listed(sorted(parked), batch_id=None))
    freed, refused = Effect("waiting", "the batch is published again"), Effect("refused", NOT_PARKED)
    return {letter.pk: freed if batch_of(letter) in parked else refused for letter in letters}


def effect(letters: Sequence[DeadLetter]) -> dict[UUID, Effect]:
    """`sent` proves it; parked again is failed again, with the letter that says why."""
    batches, later = Batch.objects.in_bulk(_ids(letters)), successors(letters, STEP)
    return {letter.pk: _effect(letter, batches.get(batch_of(letter)), later.get(letter.pk)) for letter in letters}


def _effect(letter: DeadLetter, batch: Batch | None, after: DeadLetter | None) -> Effect:
    if after:  # whatever became of the batch then: somebody may have requeued the next letter, and it was sent
        return Effect("failed_again", after.error, successor=after.pk)
    return effect_of_batch(batch_of(letter), batch)


def effect_of_batch(pk: UUID, batch: Batch | None) -> Effect:
    """What its state says of the letter that it carries out."""
    if batch is None:
        return Effect("waiting", f"batch {pk} is not kept any more")
    url = reverse("admin:buffer_batch_change", args=[pk])
    if batch.status == Status.SENT:
        return Effect("resolved", f"batch {pk} was sent: {batch.output_partition}/{batch.output_offset}", url)
    if batch.status == Status.DISCARDED:
        return Effect("discarded", f"batch {pk} was discarded", url)
    words = "waits to be sent" if batch.status == Status.CLAIMED else "was refused by the broker"
    return Effect("waiting", f"batch {pk} {words}", url)


def discard(letter: DeadLetter, now: datetime) -> str:
    """Discard the parked batch with its orders; raises Refusal when it is not parked."""
    batch = Batch.objects.parked().select_for_update().filter(pk=letter.business_key).first()
    if batch is None:
        raise Refusal(NOT_PARKED)
    # Its orders first: as soon as the batch is no longer parked they read as sent.
    rows = BufferedEvent.objects.discard_claimed(batch, now)
    Batch.objects.parked().filter(pk=batch.pk).update(status=Status.DISCARDED)
    counters.add({(batch.stream, "flush", "discarded"): rows}, now)
    log_committed("batch_discarded", batch_id=str(batch.pk), stream=batch.stream, orders=rows)
    return f"the batch and its {rows} orders are discarded"


def restore(letter: DeadLetter, now: datetime) -> str:
    """Park the discarded batch and its orders again; Refusal, and nothing written, if one of them went another way."""
    batch = Batch.objects.select_for_update().filter(pk=letter.business_key, status=Status.DISCARDED).first()
    if batch is None:
        raise Refusal("its batch is not kept any more, or was not discarded")
    if batch.made_up_at:
        raise Refusal("a later supplement has sent what it would have said")
    orders = BufferedEvent.objects.discarded_with(batch).select_for_update()
    rows = list(orders.values_list("pk", flat=True))
    if gone := len(batch.event_ids) - len(rows):
        raise Refusal(f"{gone} of its {len(batch.event_ids)} orders were opened again, or their month was dropped")
    Batch.objects.filter(pk=batch.pk, status=Status.DISCARDED).put(Status.PARKED)
    BufferedEvent.objects.discarded_with(batch).update(status="claimed", updated_at=now)
    counters.add({(batch.stream, "flush", "discarded"): -len(rows)}, now)
    log_committed("batch_restored", batch_id=str(batch.pk), stream=batch.stream, orders=len(rows))
    return f"the batch is a dead letter again, with its {len(rows)} orders"


def newest_letter(batch_id: UUID) -> DeadLetter | None:
    """The letter that this batch left last."""
    rows = DeadLetter.objects.filter(business_key=str(batch_id), step=STEP)
    return rows.only("pk", "revision").order_by("-revision").first()


def successors(letters: Sequence[DeadLetter], step: str) -> dict[UUID, DeadLetter]:
    """`{letter: the letter of the next revision}`, which its batch or order has left at this step since."""
    keys = {letter.business_key for letter in letters}
    rows = DeadLetter.objects.filter(business_key__in=keys, step=step).only("pk", "predecessor", "error")
    return {letter.predecessor: letter for letter in rows if letter.predecessor}


def batch_of(letter: DeadLetter) -> UUID:
    return UUID(letter.business_key)


def _ids(letters: Sequence[DeadLetter]) -> list[UUID]:
    return [batch_of(letter) for letter in letters]
