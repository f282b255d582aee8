"""Letters of orders: never stored, or versions of stored ones that came late or that no batch could hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from buffer.events.arrivals import OrderKey, Position
from buffer.events.models import NO_BATCH, Batch
from buffer.flush import supplement
from buffer.flush.batch_letters import CUT, RefusedBatchLetters, StreamLetters, effect_of_batch, successors
from buffer.ingest.batch import StoredOrder
from buffer.ingest.handler import EVENTS, Ingest
from buffer.streams import Stream
from config.gate import InvalidRecord
from config.letters import Effect, Judgement
from outbox.letters.models import DeadLetter
from outbox.letters.redelivery import (
    ReturnedBatch,
    batch_of,
    failed_again,
    foreseen,
    not_eligible,
    refusals,
    returns_of,
)

GONE = "the order is not in the buffer any more"


class OrderLetters(StreamLetters):
    """Orders of one stream that were never stored."""

    def order_in(self, key: str, topic: str) -> str:
        return key

    def judge(self, letters: Sequence[DeadLetter], now: datetime) -> Mapping[UUID, Judgement]:
        """What storing them would do; a record that the gate still refuses would fail again."""
        returns, refused = returns_of(letters)
        judgements = not_eligible(refused)
        handler = Ingest(self.stream)
        for back in returns:
            batch = back.batch
            batch.prepared = handler.prepare(batch)
            judgements |= foreseen(batch.prepared.letters)
            rows = _rows(self.stream, batch.prepared.records)
            sent = _batches(row.batch for row in rows.values())
            for key, records in batch.prepared.records.items():
                for _row, record in records:
                    at = Position(batch.topic_ids[record.topic], record.partition, record.offset, record.timestamp)
                    judgements[record.letter_id] = _foresee(at, key, rows.get(key), sent)
        return judgements

    def take_back(self, letters: Sequence[DeadLetter], now: datetime) -> Mapping[UUID, Effect]:
        """Store the records at their own positions and the next revision, in the caller's transaction."""
        returns, refused = returns_of(letters)
        effects = refusals(refused)
        handler = Ingest(self.stream)
        for back in returns:
            batch = back.batch
            batch.prepared = handler.prepare(batch)
            failed = failed_again(handler.apply(batch, now).letters)
            places = {id(row[1]): key for key, rows in batch.prepared.records.items() for row in rows}
            for letter, record in back.pairs:
                key = places.get(id(record))
                at = f"waits at {key[2]} for its batch" if key else "was read"
                effects[letter.pk] = failed.get(letter.pk) or Effect("waiting", f"order {at}")
        return effects

    def effect(self, letters: Sequence[DeadLetter], now: datetime) -> Mapping[UUID, Effect]:
        """What became of the orders that these letters are about."""
        returns, _refused = returns_of(letters)
        carried = _batches(letter.carrier for letter in letters if letter.carrier)
        again = successors(letters, CUT)
        effects: dict[UUID, Effect] = {}
        for back in returns:
            keys = _keys(self.stream, back)
            rows = _rows(self.stream, keys.values())
            batches = {**carried, **_batches(row.batch for row in rows.values())}
            for letter, record in back.pairs:
                at = Position(letter.topic_id, record.partition, record.offset, record.timestamp)
                row = rows.get(keys[letter.pk]) if letter.pk in keys else None
                if after := again.get(letter.pk):
                    effects[letter.pk] = Effect("failed_again", after.error, successor=after.pk)
                elif letter.carrier:
                    effects[letter.pk] = effect_of_batch(letter.carrier, carried.get(letter.carrier))
                else:
                    effects[letter.pk] = _effect_of_order(at, row, batches)
        return effects

    def backpressure(self, letters: Sequence[DeadLetter], now: datetime) -> str:
        return f"{self.source} is full and takes no more for now" if Ingest(self.stream).pressure() else ""

    def blocked_reason(self, letters: Sequence[DeadLetter], now: datetime) -> str:
        return ""  # what is stored has found room

    def why_not_edited(self, letter: DeadLetter) -> str:
        return ""

    def identity(self, letter: DeadLetter) -> str:
        """The order that its record is about: month, order, location."""
        (back,), _ = returns_of([letter])
        key = _keys(self.stream, back).get(letter.pk)
        return "/".join(map(str, key)) if key else ""

    def faults(self, letter: DeadLetter) -> Sequence[str]:
        """What the gate and the months that are kept say against its record; nothing is written."""
        return [refused.error for refused in Ingest(self.stream).prepare(batch_of(letter)).letters]


class LateLetters(OrderLetters):
    """Versions of stored orders of one stream: they came late, or no batch could hold them."""

    steps = supplement.STEPS

    def judge(self, letters: Sequence[DeadLetter], now: datetime) -> Mapping[UUID, Judgement]:
        return supplement.foresee(self.stream, letters)

    def take_back(self, letters: Sequence[DeadLetter], now: datetime) -> Mapping[UUID, Effect]:
        return supplement.send_late(self.stream, letters, now)

    def backpressure(self, letters: Sequence[DeadLetter], now: datetime) -> str:
        return ""


# Orders, then buckets, then counters: the order in which an ingester locks them.
KINDS = (OrderLetters, RefusedBatchLetters, LateLetters)


# -- What became of an order, or would --------------------------------------------------------------------------
def _effect_of_order(at: Position, row: StoredOrder | None, batches: Mapping[UUID, Batch]) -> Effect:
    if row is None or at.newer_than(row.at):
        return Effect("waiting", GONE)
    if row.status == "pending":
        return Effect("waiting", f"waits at {row.location_id} for its batch")
    if row.status == "sent":  # stored like this after a restore
        return Effect("resolved", f"the order was sent with batch {row.batch}")
    if row.batch == NO_BATCH:
        return Effect("discarded", "the order was withdrawn")
    return effect_of_batch(row.batch, batches.get(row.batch))


def _foresee(at: Position, key: OrderKey, row: StoredOrder | None, batches: Mapping[UUID, Batch]) -> Judgement:
    if row is None:
        return Judgement(True, f"The order waits at {key[2]}.", "It goes into the next batch.", "ok")
    if not at.newer_than(row.at):
        return Judgement(True, "Changes nothing.", "This version of the order, or a newer one, is there.", "idle")
    if row.status == "pending":
        return Judgement(True, "The order goes into the next batch.", "Its message is replaced.", "ok")
    return Judgement(False, "Fails again.", "The order was claimed before: it becomes a late letter.", "warn")


def _keys(stream: Stream, back: ReturnedBatch) -> dict[UUID, OrderKey]:
    """The order of each letter whose record the gate lets through."""
    keys = {}
    for letter, record in back.pairs:
        try:
            message = stream.gate.decode(record.value)
        except InvalidRecord:
            continue
        keys[letter.pk] = (stream.month_of(message), message.order_id, message.location_id)
    return keys


def _rows(stream: Stream, keys: Iterable[OrderKey]) -> dict[OrderKey, StoredOrder]:
    rows = map(StoredOrder._make, EVENTS.read(sorted(set(keys)), StoredOrder._fields, {"stream": stream.name}))
    return {row.key: row for row in rows}


def _batches(ids: Iterable[UUID]) -> dict[UUID, Batch]:
    wanted = set(ids) - {NO_BATCH}
    names = ("batch_id", "status", "output_partition", "output_offset")
    return {batch.pk: batch for batch in Batch.objects.filter(pk__in=wanted).only(*names)} if wanted else {}
