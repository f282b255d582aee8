"""Late events: what was already sent is corrected by a supplement, the signed difference."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from django.db import transaction
from django.db.models import F

from buffer.events.arrivals import OrderKey, Position, arrive
from buffer.events.models import NO_BATCH, Batch, Bucket, BufferedEvent
from buffer.flush.batch_letters import CUT
from buffer.flush.freeze import content_hash, headers_of, iso, trace_cut
from buffer.streams import Items, Stream
from config.admin.humanize import plural
from config.database.dialects.base import Row
from config.database.retry import Stale
from config.database.upsert import Rewrite, uuid_text
from config.gate import InvalidRecord
from config.letters import Effect, Judgement, Refusal
from config.payload import EditedCopy, as_json, digest
from config.telemetry import tracing
from config.telemetry.logs import RowIds, log_committed
from outbox.bookkeeping import counters
from outbox.letters.models import DeadLetter
from outbox.letters.redelivery import record_of, would_refuse

Status = BufferedEvent.Status
STEPS = ("late", CUT)  # of the letters that are applied here
Missing = dict[OrderKey, dict[uuid.UUID, str]]  # the messages of discarded supplements
GONE = "the order is no longer in the buffer: its month was dropped"
NOT_SENT_YET = "its batch is cut but not sent yet: try again when it is"
NEWER_TAKEN = "nothing to do: a newer version of the order has been taken"
CONTENT = "revision payload_hash topic_id source_partition source_offset source_timestamp traceparent payload"


class StoredStatus(TypedDict):
    """Of an order, besides what it reads as."""

    stored: str


if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

    StoredEvent = WithAnnotations[BufferedEvent, StoredStatus]


def _rewrite(changes: str, constants: str, guard: str) -> Rewrite:
    return Rewrite(
        BufferedEvent,
        key="id partition_key",
        changes=changes,
        constants=f"updated_at {constants}",
        guard=f"old.revision < new.revision AND {guard}",
        prune="partition_key",
    )


# Of the status as it is stored, which is unchanged: whether a claimed order was sent is said by its batch.
REPLACE = _rewrite(f"status {CONTENT}", "", "old.status = new.status")
REOPEN = _rewrite(CONTENT, "status batch_id", "old.status = 'discarded'")


class LateRecord(NamedTuple):
    """A letter with a late record: where it stands, what it says, and which order it is about."""

    letter: DeadLetter
    at: Position
    payload: str
    key: OrderKey
    traceparent: str

    def is_news_to(self, event: BufferedEvent, missing: Collection[str]) -> bool:
        """Whether there is something to do: it is newer than the row; or it is what the row says, and was not sent.

        That is so of an order that was set aside, and where a supplement of it is missing.
        """
        at = _position(event)
        if self.at.newer_than(at):
            return True
        if self.letter.step == CUT and event.status == Status.DISCARDED:
            return self.at == at or event.payload_hash == self._received
        return bool(missing) and event.status == Status.SENT and self.at == at

    @property
    def _received(self) -> str:
        """The digest of the letter's own payload, which an edited copy hides."""
        if not self.letter.edit:
            return digest(self.payload.encode())
        return digest(DeadLetter.objects.get(pk=self.letter.pk).json_payload)


@dataclass
class Corrections:
    """What late records change, collected for a few statements: orders, supplements, arrivals, counts."""

    stream: Stream
    now: datetime
    missing: Missing
    effects: dict[uuid.UUID, Effect] = field(default_factory=dict)
    changed: dict[int, StoredEvent] = field(default_factory=dict)
    reopened: set[int] = field(default_factory=set)
    supplements: list[tuple[BufferedEvent, uuid.UUID, LateRecord, Items]] = field(default_factory=list)
    arrivals: dict[str, tuple[int, int]] = field(default_factory=dict)
    made_up: list[uuid.UUID] = field(default_factory=list)
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)


def send_late(stream: Stream, letters: Sequence[DeadLetter], now: datetime) -> dict[uuid.UUID, Effect]:
    """Apply late events inside the caller's transaction; says of each what was done.

    A sent order gets a supplement, a discarded one is opened again. A letter that is older than what was
    sent changes nothing.
    """
    if not letters:
        return {}
    records, refused = _records_of(stream, letters)
    events = _events(stream, records, lock=True)
    work = Corrections(
        stream, now, _missing(stream, events), effects={pk: Effect("refused", why) for pk, why in refused.items()}
    )
    for late in sorted(records, key=lambda late: (late.key, late.at.timestamp, late.at.partition, late.at.offset)):
        event = events.get(late.key)
        if event is None or event.status == Status.CLAIMED:
            work.effects[late.letter.pk] = Effect("refused", NOT_SENT_YET if event else GONE)
            continue
        work.effects[late.letter.pk] = _correct(work, event, late)
        scope = str(late.at.partition)
        work.counts.update({(stream.name, scope, "replayed"): 1, (stream.name, scope, "superseded"): 1})
    _write(work)
    return work.effects


def foresee(stream: Stream, letters: Sequence[DeadLetter]) -> dict[uuid.UUID, Judgement]:
    """What `send_late` would do now: the same questions in the same order, with nothing locked or written."""
    records, refused = _records_of(stream, letters)
    events = _events(stream, records, lock=False)
    missing = _missing(stream, events)
    judged = {
        late.letter.pk: _foresee(stream, late, events.get(late.key), missing.get(late.key, {}).values())
        for late in records
    }
    return judged | {pk: would_refuse(why) for pk, why in refused.items()}


def _foresee(stream: Stream, late: LateRecord, event: BufferedEvent | None, missing: Collection[str]) -> Judgement:
    if event is None or event.status == Status.CLAIMED:
        return would_refuse(NOT_SENT_YET if event else GONE)
    if not late.is_news_to(event, missing):
        return Judgement(True, "Changes nothing.", "A newer version of the order has been taken.", "idle")
    if event.status != Status.SENT:
        result = "Its message is replaced." if event.status == Status.PENDING else "It was discarded and waits again."
        return Judgement(True, "The order goes into the next batch.", result, "ok")
    items = _difference(stream, late.payload, event.payload, missing)
    if not items:
        return Judgement(True, "Sends nothing.", "The quantities are those that were sent.", "idle")
    detail = f"The difference to what was sent: {plural(len(items), 'SKU', 'SKUs')}."
    return Judgement(True, "Sends a supplement.", detail, "ok")


def _records_of(stream: Stream, letters: Sequence[DeadLetter]) -> tuple[list[LateRecord], dict[uuid.UUID, str]]:
    """The late records of these letters; and why others cannot be read."""
    records, refused = [], {}
    for letter in letters:
        try:
            record = record_of(letter)
            # What was set aside when a batch was cut is the order as it is stored: JSON, whatever its topic is written in.
            value = stream.gate.opened(EditedCopy(record.value or b"") if letter.step == CUT else record.value) or b""
            message = stream.gate.judge(value)
        except (Refusal, InvalidRecord) as refusal:
            refused[letter.pk] = str(refusal)
            continue
        at = Position(letter.topic_id, record.partition, record.offset, record.timestamp)
        key = (stream.month_of(message), message.order_id, message.location_id)
        traceparent = tracing.traceparent_in(record.headers)
        records.append(LateRecord(letter, at, value.decode(), key, traceparent))
    return records, refused


def _events(stream: Stream, records: Sequence[LateRecord], *, lock: bool) -> dict[OrderKey, StoredEvent]:
    """The stored orders that these are about."""
    months, orders = {late.key[0] for late in records}, {late.key[1] for late in records}
    rows = BufferedEvent.objects.of_stream(stream.name).in_months(months).filter(order_id__in=orders).order_by("id")
    rows = rows.annotate(stored=F("status__stored"))
    keys = {late.key for late in records}
    events = rows.select_for_update() if lock else rows
    keyed = {(event.partition_key, event.order_id, event.location_id): event for event in events}
    return {key: event for key, event in keyed.items() if key in keys}


def _missing(stream: Stream, events: Mapping[OrderKey, BufferedEvent]) -> Missing:
    """The supplements of sent orders that were discarded, so that the rows say more than was sent."""
    originals = {event.batch_id for event in events.values() if event.status == Status.SENT}
    if not originals:
        return {}
    keys = {(event.batch_id, event.order_id): key for key, event in events.items()}
    rows = Batch.objects.missing().of_streams([stream.name]).filter(supplement_of__in=list(originals))
    supplements: Missing = {}
    for pk, original, payload in rows.order_by("sequence").values_list("pk", "supplement_of", "payload"):
        (order,) = stream.sent.decode(payload).order_ids
        if key := keys.get((original, order)):
            supplements.setdefault(key, {})[pk] = payload
    return supplements


def _difference(stream: Stream, new: str, old: str, missing: Collection[str]) -> Items:
    return stream.difference(new, old, missing) if missing else stream.difference(new, old)


def _position(event: BufferedEvent) -> Position:
    return Position(event.topic_id, event.source_partition, event.source_offset, event.source_timestamp)


def _correct(work: Corrections, event: StoredEvent, late: LateRecord) -> Effect:
    """Decide, and change the order in memory: the next record of the same order finds it so."""
    missing = work.missing.get(late.key, {})
    if not late.is_news_to(event, missing.values()):
        return Effect("resolved", NEWER_TAKEN)
    status, before = event.status, event.payload
    _take_over(work, event, late)
    if status == Status.SENT:
        items = _difference(work.stream, late.payload, before, missing.values())
        work.made_up += work.missing.pop(late.key, {})
        if not items:
            return Effect("resolved", "nothing to send: the quantities are those that were sent")
        place = f"{late.at.topic_id}/{late.at.partition}/{late.at.offset}"
        # With what it makes up for: the same position said something else before.
        batch_id = uuid.uuid5(event.batch_id, "/".join([place, *sorted(map(str, missing))]))
        work.supplements.append((event, batch_id, late, items))
        return Effect("waiting", f"sent as supplement {batch_id} of batch {event.batch_id}", carrier=batch_id)
    if status == Status.PENDING:
        return Effect("waiting", "the order is still open: its message was replaced")
    event.status, event.batch_id = Status.PENDING, NO_BATCH
    work.reopened.add(event.pk)
    number, _ = work.arrivals.get(event.location_id, (0, 0))
    work.arrivals[event.location_id] = (number + 1, late.at.partition)
    work.counts[work.stream.name, str(late.at.partition), "open"] += 1
    return Effect("waiting", "the order had been discarded and waits for a batch again")


def _take_over(work: Corrections, event: StoredEvent, late: LateRecord) -> None:
    """The row says what was last sent, or is to be sent; its trace leads to the batch that carries it."""
    work.changed[event.pk] = event
    if late.at.newer_than(_position(event)):
        event.topic_id, event.source_partition, event.source_offset, event.source_timestamp = late.at
        if event.status != Status.SENT:  # a supplement is found by its letter
            event.traceparent = late.traceparent or None
    event.payload, event.payload_hash = late.payload, digest(late.payload.encode())
    event.revision += 1


def _write(work: Corrections) -> None:
    """Orders first; then what workers share: buckets in sorted order, and counters last, as in ingestion."""
    ours = [event for _pk, event in sorted(work.changed.items())]
    kept, reopened = ([event for event in ours if (event.pk in work.reopened) is chosen] for chosen in (False, True))
    again = {"status": Status.PENDING.value, "batch_id": uuid_text(NO_BATCH)}
    _run(REPLACE, [_row(event, event.stored) for event in kept], {"updated_at": work.now})
    _run(REOPEN, [_row(event) for event in reopened], {"updated_at": work.now, **again})
    _supplements(work)
    if Batch.objects.missing().filter(pk__in=work.made_up).update(made_up_at=work.now) != len(work.made_up):
        raise Stale("a discarded supplement has changed since it was read")
    arrive(work.stream, work.arrivals, work.now)
    counters.add(work.counts, work.now)
    _log(work)


def _log(work: Corrections) -> None:
    """Orders that were opened again or took a late version over, and the supplements that say so."""
    stream = work.stream.name
    if orders := [event for _pk, event in sorted(work.changed.items())]:
        became = {"reopened": len(work.reopened), "orders": len(orders)}
        log_committed("orders_corrected", stream=stream, **became, ids=RowIds(orders, order_id="order_id"))
    if made := [(batch_id, event.order_id, event.batch_id) for event, batch_id, *_ in work.supplements]:
        ids = RowIds(made, batch_id=0, order_id=1, supplement_of=2)
        log_committed("supplements_made", stream=stream, batches=len(made), ids=ids)


def _row(event: BufferedEvent, *stored: str) -> Row:
    content = (event.revision, event.payload_hash, *_position(event), event.traceparent, event.payload)
    return (event.pk, event.partition_key, *stored, *content)


def _run(change: Rewrite, rows: Sequence[Row], constants: Mapping[str, object]) -> None:
    changed = change.run(rows, constants, prune=sorted({row[1] for row in rows}))
    if changed != len(rows):
        raise Stale(f"{len(rows) - changed} of {len(rows)} locked orders have changed")


def _supplements(work: Corrections) -> None:
    sequences, began = _sequences(work), time.time_ns()
    batches = []
    for event, batch_id, late, items in work.supplements:
        sequences[event.location_id] += 1
        batches.append(_supplement(work, event, batch_id, late.at, items, sequences[event.location_id]))
    Batch.objects.bulk_create(batches)

    def trace() -> None:
        for batch, (_event, _id, late, _items) in zip(batches, work.supplements, strict=True):
            trace_cut(batch.headers, [late.traceparent], work.stream.name, 1, began)

    transaction.on_commit(trace, robust=True)


def _sequences(work: Corrections) -> dict[str, int]:
    """Take as many numbers of each location as it gets supplements; returns the ones before."""
    wanted = Counter(event.location_id for event, *_ in work.supplements)
    buckets = Bucket.objects.of_stream(work.stream.name)
    for location, number in sorted(wanted.items()):
        buckets.filter(location_id=location).update(sequence=F("sequence") + number)
    last = dict(buckets.filter(location_id__in=wanted).values_list("location_id", "sequence")) if wanted else {}
    return {location: last[location] - number for location, number in wanted.items()}


def _supplement(
    work: Corrections, event: BufferedEvent, batch_id: uuid.UUID, at: Position, items: Items, sequence: int
) -> Batch:
    message = {
        "batch_id": str(batch_id),
        "location_id": event.location_id,
        "flushed_at": iso(work.now),
        "order_ids": [event.order_id],
        "items": items,
        "supplement_of": str(event.batch_id),
    }
    headers = headers_of(batch_id, [[at.partition, at.offset]], at.topic_id)
    place = {"stream": work.stream.name, "location_id": event.location_id, "sequence": sequence}
    month = {"partition_key": event.partition_key, "months": [event.partition_key]}
    origin = {"reason": "supplement", "supplement_of": event.batch_id, "event_count": 1, "claimed_at": work.now}
    payload = as_json(work.stream.in_words(message))
    content = {"payload": payload, "headers": headers, "content_hash": content_hash(payload, headers)}
    return Batch(batch_id=batch_id, **place, **month, **origin, **content)
