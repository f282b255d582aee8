"""LateRecord events: what was already sent is corrected by a supplement, the signed difference per SKU."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import F

from buffer.events.buckets import arrive
from buffer.events.models import NO_BATCH, Batch, Bucket, BufferedEvent
from buffer.events.positions import Position
from buffer.flush.freeze import content_hash, headers_of, iso
from buffer.streams import Stream
from config.admin.humanize import plural
from config.as_json import as_json
from config.database.errors import Stale
from config.database.rewrite import Rewrite
from config.database.upsert import uuid_text
from config.digest import digest
from config.flows import Effect, Judgement, Refusal
from config.gate import InvalidRecord
from outbox.bookkeeping import counters
from outbox.letters.models import DeadLetter
from outbox.letters.redelivery import record_of, would_refuse

Status = BufferedEvent.Status
Key = tuple[int, str, str]  # month, order, location
GONE = "the order is no longer in the buffer: its month was dropped"
NOT_SENT_YET = "its batch is cut but not sent yet: try again when it is"
NEWER_TAKEN = "nothing to do: a newer version of the order has been taken"
SAID = "revision payload_hash topic_id source_partition source_offset source_timestamp payload"


def _rewrite(said: str, more: str, guard: str) -> Rewrite:
    return Rewrite(
        BufferedEvent,
        key="id partition_key",
        changes=said,
        constants=f"updated_at {more}",
        guard=f"old.revision < new.revision AND {guard}",
        prune="partition_key",
    )


# Of the status as it is stored, which is unchanged: whether a claimed order was sent is said by its batch.
REPLACE = _rewrite(f"status {SAID}", "", "old.status = new.status")
REOPEN = _rewrite(SAID, "status batch_id", "old.status = 'discarded'")


class LateRecord(NamedTuple):
    """A letter with a late record: where it stands, what it says, and which order it is about."""

    letter: DeadLetter
    at: Position
    payload: str
    key: Key


@dataclass
class Corrections:
    """What late records change, collected for a few statements: orders, supplements, arrivals, counts."""

    stream: Stream
    now: datetime
    effects: dict[uuid.UUID, Effect] = field(default_factory=dict)
    changed: dict[int, BufferedEvent] = field(default_factory=dict)
    reopened: set[int] = field(default_factory=set)
    supplements: list[tuple[BufferedEvent, uuid.UUID, Position, list[dict[str, Any]]]] = field(default_factory=list)
    arrivals: dict[str, tuple[int, int]] = field(default_factory=dict)
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)


def send_late(stream: Stream, letters: Sequence[DeadLetter], now: datetime) -> dict[uuid.UUID, Effect]:
    """Apply late events inside the caller's transaction; says of each what was done.

    A sent order gets a supplement, a discarded one is opened again. A letter that is older than what was
    sent changes nothing.
    """
    if not letters:
        return {}
    found, refused = _said(stream, letters)
    events = _events(stream, found, lock=True)
    work = Corrections(stream, now, effects={pk: Effect("refused", why) for pk, why in refused.items()})
    for late in sorted(found, key=lambda late: (late.key, late.at.timestamp, late.at.partition, late.at.offset)):
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
    found, refused = _said(stream, letters)
    events = _events(stream, found, lock=False)
    judged = {late.letter.pk: _foresee(stream, late, events.get(late.key)) for late in found}
    return judged | {pk: would_refuse(why) for pk, why in refused.items()}


def _foresee(stream: Stream, late: LateRecord, event: BufferedEvent | None) -> Judgement:
    if event is None or event.status == Status.CLAIMED:
        return would_refuse(NOT_SENT_YET if event else GONE)
    if not late.at.newer_than(_position(event)):
        return Judgement(True, "Changes nothing.", "A newer version of the order has been taken.", "idle")
    if event.status != Status.SENT:
        done = "Its message is replaced." if event.status == Status.PENDING else "It was discarded and waits again."
        return Judgement(True, "The order goes into the next batch.", done, "ok")
    items = stream.difference(late.payload, event.payload)
    if not items:
        return Judgement(True, "Sends nothing.", "The quantities are those that were sent.", "idle")
    said = f"The difference to what was sent: {plural(len(items), 'SKU', 'SKUs')}."
    return Judgement(True, "Sends a supplement.", said, "ok")


def _said(stream: Stream, letters: Sequence[DeadLetter]) -> tuple[list[LateRecord], dict[uuid.UUID, str]]:
    """Where late records stand and what they say; and why others cannot be read."""
    found, refused = [], {}
    for letter in letters:
        try:
            record = record_of(letter)
            message = stream.gate.decode(record.value)
        except (Refusal, InvalidRecord) as refusal:
            refused[letter.pk] = str(refusal)
            continue
        at = Position(letter.topic_id, record.partition, record.offset, record.timestamp)
        key = (stream.month_of(message), message.order_id, message.location_id)
        found.append(LateRecord(letter, at, (record.value or b"").decode(), key))
    return found, refused


def _events(stream: Stream, found: Sequence[LateRecord], *, lock: bool) -> dict[Key, BufferedEvent]:
    """The stored orders that these are about."""
    months, orders = {late.key[0] for late in found}, {late.key[1] for late in found}
    rows = BufferedEvent.objects.of_stream(stream.name).in_months(months).filter(order_id__in=orders).order_by("id")
    rows = rows.annotate(stored=F("status__stored"))
    wanted = {late.key for late in found}
    events = rows.select_for_update() if lock else rows
    keyed = {(event.partition_key, event.order_id, event.location_id): event for event in events}
    return {key: event for key, event in keyed.items() if key in wanted}


def _position(event: BufferedEvent) -> Position:
    return Position(event.topic_id, event.source_partition, event.source_offset, event.source_timestamp)


def _correct(work: Corrections, event: BufferedEvent, late: LateRecord) -> Effect:
    """Decide, and change the order in memory: the next record of the same order finds it so."""
    if not late.at.newer_than(_position(event)):
        return Effect("resolved", NEWER_TAKEN)
    status, before = event.status, event.payload
    _take_over(work, event, late)
    if status == Status.SENT:
        items = work.stream.difference(late.payload, before)
        if not items:
            return Effect("resolved", "nothing to send: the quantities are those that were sent")
        batch_id = uuid.uuid5(event.batch_id, f"{late.at.topic_id}/{late.at.partition}/{late.at.offset}")
        work.supplements.append((event, batch_id, late.at, items))
        return Effect("waiting", f"sent as supplement {batch_id} of batch {event.batch_id}", carrier=batch_id)
    if status == Status.PENDING:
        return Effect("waiting", "the order is still open: its message was replaced")
    event.status, event.batch_id = Status.PENDING, NO_BATCH
    work.reopened.add(event.pk)
    number, _ = work.arrivals.get(event.location_id, (0, 0))
    work.arrivals[event.location_id] = (number + 1, late.at.partition)
    work.counts[work.stream.name, str(late.at.partition), "open"] += 1
    return Effect("waiting", "the order had been discarded and waits for a batch again")


def _take_over(work: Corrections, event: BufferedEvent, late: LateRecord) -> None:
    """The row says what was last sent, or is to be sent."""
    work.changed[event.pk] = event
    event.topic_id, event.source_partition, event.source_offset, event.source_timestamp = late.at
    event.payload, event.payload_hash = late.payload, digest(late.payload.encode())
    event.revision += 1


def _write(work: Corrections) -> None:
    """Orders first; then what workers share: buckets in sorted order, and counters last, as in ingestion."""
    ours = [event for _pk, event in sorted(work.changed.items())]
    kept, reopened = ([event for event in ours if (event.pk in work.reopened) is chosen] for chosen in (False, True))
    again = {"status": Status.PENDING.value, "batch_id": uuid_text(NO_BATCH)}
    _run(REPLACE, [_row(event, event.stored) for event in kept], {"updated_at": work.now})  # type: ignore[attr-defined]
    _run(REOPEN, [_row(event) for event in reopened], {"updated_at": work.now, **again})
    _supplements(work)
    arrive(work.stream, work.arrivals, work.now)
    counters.add(work.counts, work.now)


def _row(event: BufferedEvent, *stored: str) -> tuple[Any, ...]:
    said = (event.revision, event.payload_hash, *_position(event), event.payload)
    return (event.pk, event.partition_key, *stored, *said)


def _run(change: Rewrite, rows: Sequence[tuple[Any, ...]], constants: dict[str, Any]) -> None:
    changed = change.run(rows, constants, prune=sorted({row[1] for row in rows}))
    if changed != len(rows):
        raise Stale(f"{len(rows) - changed} of {len(rows)} locked orders have changed")


def _supplements(work: Corrections) -> None:
    sequences = _sequences(work)
    batches = []
    for event, batch_id, at, items in work.supplements:
        sequences[event.location_id] += 1
        batches.append(_supplement(work, event, batch_id, at, items, sequences[event.location_id]))
    Batch.objects.bulk_create(batches)


def _sequences(work: Corrections) -> dict[str, int]:
    """Take as many numbers of each location as it gets supplements; returns the ones before."""
    wanted = Counter(event.location_id for event, *_ in work.supplements)
    buckets = Bucket.objects.of_stream(work.stream.name)
    for location, number in sorted(wanted.items()):
        buckets.filter(location_id=location).update(sequence=F("sequence") + number)
    found = dict(buckets.filter(location_id__in=wanted).values_list("location_id", "sequence")) if wanted else {}
    return {location: found[location] - number for location, number in wanted.items()}


def _supplement(
    work: Corrections,
    event: BufferedEvent,
    batch_id: uuid.UUID,
    at: Position,
    items: list[dict[str, Any]],
    sequence: int,
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
    payload = as_json(message)
    content = {"payload": payload, "headers": headers, "content_hash": content_hash(payload, headers)}
    return Batch(batch_id=batch_id, **place, **month, **origin, **content)
