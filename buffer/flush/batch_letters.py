"""Letters of the flush: of an order that no batch can hold, and of a batch that the broker refuses; and what becomes of both."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Max
from django.urls import reverse

from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.flush.freeze import Claimed, ids_of_batches, orders_in
from buffer.streams import GROUP, Stream
from config.database.clock import database_now
from config.database.retry import Remedy, remedy_for
from config.formats import shown
from config.kafka import Replayed, topic_name
from config.letters import Effect, Judgement, Letters
from config.telemetry.logs import RowIds, log_committed
from config.telemetry.redaction import error_text, trace_of
from outbox.bookkeeping import counters
from outbox.letters.burial import Letter, bury
from outbox.letters.models import BurialKey, DeadLetter
from outbox.letters.redelivery import would_refuse

# -- Of an order: no batch can hold it, because the database or its stream refuses it ------------------------
CUT = "cut"  # the step of such a letter


class Unfrozen(Exception):
    """A stream has not made a message of orders that its gate has let through."""


def is_refusal(error: BaseException) -> bool:
    """Whether the orders are what is wrong: other ones may be cut."""
    return isinstance(error, Unfrozen) or remedy_for(error) is Remedy.DATA


def set_aside(stream: Stream, bucket: int, event: Claimed, error: BaseException) -> bool:
    """Discard an order that cannot be cut, with a letter that gives it back; False when it changed meanwhile."""
    with transaction.atomic():
        now = database_now()
        locked = Bucket.objects.filter(pk=bucket).lock_free().exists()
        same = {"pk": event.id, "payload_hash": event.payload_hash, "source_offset": event.source_offset}
        pending = BufferedEvent.objects.pending().in_months([event.partition_key]).filter(**same)
        order = pending.lock_free().first() if locked else None
        if order is None:
            return False
        if pending.update(status=BufferedEvent.Status.DISCARDED, updated_at=now) != 1:
            raise RuntimeError(f"order {event.id} is locked, and not set aside")
        Bucket.objects.filter(pk=bucket).shrink(1)
        if not bury([_letter(stream, order, error)], topic_name(GROUP), now):
            raise RuntimeError(f"order {event.id} was set aside without a letter")
        counters.add({(stream.name, "flush", "open"): -1, (stream.name, "flush", "discarded"): 1}, now)
        log_committed(
            "order_set_aside", "error", stream=stream.name, order_id=event.order_id, location=event.location_id,
            error=str(error).strip(),
        )  # fmt: skip
    return True


def _letter(stream: Stream, order: BufferedEvent, error: BaseException) -> Letter:
    """The record as it came, at its place; of the next revision where it was set aside before."""
    topic, partition, offset = topic_name(stream.topic), order.source_partition, order.source_offset
    place = {"topic": topic, "topic_id": order.topic_id, "partition": partition, "offset": offset}
    known = BurialKey.objects.filter(**place, group=topic_name(GROUP), step=CUT).aggregate(last=Max("revision"))
    # Whichever letter gave it back: what became of that one is this.
    before = DeadLetter.objects.filter(**place, status="requeued").order_by("-requeued_at", "-pk").first()
    headers = [("traceparent", order.traceparent.encode())] if order.traceparent else []  # all that a row keeps of them
    key, value = order.location_id.encode(), order.payload.encode()
    record = Replayed(topic, partition, offset, order.source_timestamp, key, value, headers)
    return Letter(
        stream.name,
        CUT,
        "cannot_be_summed" if isinstance(error, Unfrozen) else "database_refused",
        error_text(error),
        record,
        order.topic_id,
        0 if known["last"] is None else known["last"] + 1,
        type(error.__cause__ or error).__name__,
        trace_of(error),
        order.order_id,
        predecessor=before.pk if before else None,
    )


# -- Of a batch: the broker refuses it, and the same bytes are published again -------------------------------
PUBLISH = "publish"  # the step of such a letter
NOT_PARKED = "the batch is no longer parked"
Status = Batch.Status


class StreamLetters(Letters[DeadLetter]):
    """What all letters of one stream have in common: what of them may be read, and who brings their effect."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream.name)
        self.stream = stream
        self.readable, self.locked = stream.readable, stream.locked
        self.patience = max(Letters.patience, 2 * stream.cap)

    def opened(self, letter: DeadLetter) -> tuple[bytes, str]:
        return shown(self.stream.gate, self.stream.options, bytes(letter.payload or b""))

    def required_workers(self, letters: Sequence[DeadLetter]) -> Mapping[str, Collection[str]]:
        return {"flush_buffer": [self.source]}


class RefusedBatchLetters(StreamLetters):
    """Batches of one stream that the broker refused."""

    steps = (PUBLISH,)

    def judge(self, letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Judgement]:
        parked = set(Batch.objects.parked().filter(pk__in=_ids(letters)).values_list("pk", flat=True))
        again = Judgement(
            True, "Its batch is published again.", "The broker refuses it until its limit is raised.", "warn"
        )
        return {letter.pk: again if batch_of(letter) in parked else would_refuse(NOT_PARKED) for letter in letters}

    def take_back(self, letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Effect]:
        """Free the batches, in the caller's transaction."""
        rows = Batch.objects.parked().filter(pk__in=_ids(letters))
        parked = dict(rows.order_by("pk").select_for_update().values_list("pk", "event_count"))
        Batch.objects.filter(pk__in=parked).put(Status.CLAIMED)  # they are locked
        if parked:
            # A letter holds the message of its batch.
            again = (
                (batch_of(letter), letter.source, bytes(letter.payload or b""))
                for letter in letters
                if batch_of(letter) in parked
            )
            orders = RowIds(orders_in(again), sum(parked.values()), order_id=0, of_batch=1)
            ids = RowIds(parked, batch_id=None) | orders
            log_committed("batches_freed", batches=len(parked), ids=ids)
        freed, refused = Effect("waiting", "the batch is published again"), Effect("refused", NOT_PARKED)
        return {letter.pk: freed if batch_of(letter) in parked else refused for letter in letters}

    def effect(self, letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Effect]:
        """`sent` proves it; parked again is failed again, with the letter that says why."""
        batches, later = Batch.objects.in_bulk(_ids(letters)), successors(letters, PUBLISH)
        return {letter.pk: _effect(letter, batches.get(batch_of(letter)), later.get(letter.pk)) for letter in letters}

    def discard(self, letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Effect]:
        """Discard the parked batches with their orders."""
        batches, effects, orders = _locked(letters, Status.PARKED), {}, 0
        closed: list[Batch] = []
        for letter in letters:
            if (batch := batches.pop(batch_of(letter), None)) is None:
                effects[letter.pk] = Effect("refused", NOT_PARKED)
                continue
            # Its orders first: as soon as the batch is no longer parked they read as sent.
            rows = BufferedEvent.objects.discard_claimed(batch, now)
            Batch.objects.filter(pk=batch.pk).update(status=Status.DISCARDED)
            orders += rows
            closed.append(batch)
            effects[letter.pk] = Effect("discarded", f"the batch and its {rows} orders are discarded")
        if closed:
            counters.add({(closed[0].stream, "flush", "discarded"): orders}, now)
            log_committed("batches_discarded", batches=len(closed), orders=orders, ids=ids_of_batches(closed, orders))
        return effects

    def restore(self, letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Effect]:
        """Park the discarded batches and their orders again, but for one whose orders went another way."""
        batches, effects, orders = _locked(letters, Status.DISCARDED), {}, 0
        opened: list[Batch] = []
        for letter in letters:
            batch = batches.pop(batch_of(letter), None)
            why = _why_not_restored(batch) if batch else "its batch is not kept any more, or was not discarded"
            if batch is None or why:
                effects[letter.pk] = Effect("refused", why)
                continue
            Batch.objects.filter(pk=batch.pk).put(Status.PARKED)
            rows = BufferedEvent.objects.discarded_with(batch).update(status="claimed", updated_at=now)
            orders += rows
            opened.append(batch)
            effects[letter.pk] = Effect("waiting", f"the batch is a dead letter again, with its {rows} orders")
        if opened:
            counters.add({(opened[0].stream, "flush", "discarded"): -orders}, now)
            log_committed("batches_restored", batches=len(opened), orders=orders, ids=ids_of_batches(opened, orders))
        return effects

    def awaited(self) -> bool:
        return True

    def why_not_edited(self, letter: DeadLetter) -> str:
        return "It is a refused batch: its bytes are promised."


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


def _locked(letters: Sequence[DeadLetter], status: str) -> dict[UUID, Batch]:
    """Those of their batches that are in this state, locked in the order of their ids; all of one stream."""
    rows = Batch.objects.filter(pk__in=_ids(letters), status=status).order_by("pk").select_for_update()
    return {batch.pk: batch for batch in rows}


def _why_not_restored(batch: Batch) -> str:
    """Empty when it can be, and its orders are locked."""
    if batch.made_up_at:
        return "a later supplement has sent what it would have said"
    orders = BufferedEvent.objects.discarded_with(batch).select_for_update().values_list("pk", flat=True)
    if gone := len(batch.event_ids) - len(orders):
        return f"{gone} of its {len(batch.event_ids)} orders were opened again, or their month was dropped"
    return ""


def newest_letters(batches: Sequence[UUID]) -> dict[str, DeadLetter]:
    """`{batch: the letter that it left last}`."""
    rows = DeadLetter.objects.filter(business_key__in=list(map(str, batches)), step=PUBLISH)
    return {letter.business_key: letter for letter in rows.only("pk", "revision", "business_key").order_by("revision")}


def successors(letters: Sequence[DeadLetter], step: str) -> dict[UUID, DeadLetter]:
    """`{letter: the letter of the next revision}`, which its batch or order has left at this step since."""
    keys = {letter.business_key for letter in letters}
    rows = DeadLetter.objects.filter(business_key__in=keys, step=step).only("pk", "predecessor", "error")
    return {letter.predecessor: letter for letter in rows if letter.predecessor}


def batch_of(letter: DeadLetter) -> UUID:
    return UUID(letter.business_key)


def _ids(letters: Sequence[DeadLetter]) -> list[UUID]:
    return [batch_of(letter) for letter in letters]
