"""A batch is frozen when it is cut: id, bytes and headers are computed once, from its content alone."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import NamedTuple

import msgspec

from buffer.events.models import Batch
from buffer.streams import Stream, streams
from config.payload import as_json, digest
from config.telemetry import tracing
from config.telemetry.logs import RowIds

NAMESPACE = uuid.UUID("6f1c9a50-2f0e-5d5a-9c55-6a3b4a1c8e11")


class Claimed(NamedTuple):
    """An open event, as the claim reads it."""

    id: int
    partition_key: int
    location_id: str
    order_id: str
    payload: str
    payload_hash: str
    source_partition: int
    source_offset: int
    traceparent: str | None = None
    topic_id: str = ""  # of what the offset belongs to


class LeasedBatch(NamedTuple):
    """What sending and settling need of a `Batch`: a tuple, because models take a third of a flusher's time."""

    pk: uuid.UUID
    stream: str
    location_id: str
    payload: str
    headers: dict[str, str]
    orders: int  # sent with it for the first time: none with a supplement
    attempts: int = 0


@dataclass(frozen=True)
class Frozen:
    """What will be published: the same content has the same id, and other content never has it."""

    batch_id: uuid.UUID
    sequence: int
    payload: str
    headers: dict[str, str]
    events: Sequence[Claimed]

    @property
    def content_hash(self) -> str:
        return content_hash(self.payload, self.headers)

    @cached_property
    def months(self) -> list[int]:
        return sorted({event.partition_key for event in self.events})


def batch_id_of(stream: str, location: str, sequence: int, events: Sequence[Claimed]) -> uuid.UUID:
    """uuid5 over stream, location, sequence and the sorted content.

    A random id would change when the buffer is rebuilt from Kafka, and consumers deduplicate on it.
    """
    content = sorted(
        (event.order_id, event.source_partition, event.source_offset, event.payload_hash) for event in events
    )
    fingerprint = digest(msgspec.json.encode(content))
    return uuid.uuid5(NAMESPACE, "\x1f".join((stream, location, str(sequence), fingerprint)))


def cut(stream: Stream, events: Sequence[Claimed]) -> list[Sequence[Claimed]]:
    """Slices of at most `max_batch` events whose message stays within `max_bytes`, in order.

    One message names one topic: after that was created again, what waits from before goes out in messages of its own.
    """
    if len({event.topic_id for event in events}) > 1:
        of_topic: dict[str, list[Claimed]] = {}
        for event in events:
            of_topic.setdefault(event.topic_id, []).append(event)
        return [part for together in of_topic.values() for part in cut(stream, together)]
    slices: list[Sequence[Claimed]] = []
    start = size = 0
    for index, event in enumerate(events):
        weight = weigh(event)
        full = index - start >= stream.max_batch or size + weight > stream.max_bytes
        if full and index > start:
            slices.append(events[start:index])
            start, size = index, 0
        size += weight
    if start < len(events):
        slices.append(events[start:])
    return slices


def weigh(event: Claimed) -> int:
    """More than an event adds to the message (its items, its id, its position): the rest has room for the frame."""
    return 2 * len(event.payload.encode()) + 64


def freeze(stream: Stream, location: str, sequence: int, events: Sequence[Claimed], now: datetime) -> Frozen:
    """The message of a batch, whose events are of one topic; `now` is the database's time of the claim."""
    batch_id = batch_id_of(stream.name, location, sequence, events)
    message = {
        "batch_id": str(batch_id),
        "location_id": location,
        "flushed_at": iso(now),
        "order_ids": [event.order_id for event in events],
        "items": stream.summarise(event.payload for event in events),
    }
    # Which version of each order went out: a buffer that is rebuilt from Kafka needs to know.
    positions = [[event.source_partition, event.source_offset] for event in events]
    return Frozen(
        batch_id,
        sequence,
        as_json(stream.in_words(message)),
        headers_of(batch_id, positions, events[0].topic_id),
        events,
    )


def orders_in(batches: Iterable[tuple[uuid.UUID, str, str | bytes]]) -> Iterator[tuple[str, uuid.UUID]]:
    """Each order of batches (id, stream, message), with the id; read when its turn comes, none where a message is cut off."""
    known = streams()
    for batch_id, stream, message in batches:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, KeyError):  # a stream may be gone
            yield from ((order, batch_id) for order in known[stream].sent.decode(message).order_ids)


def ids_of_batches(batches: Sequence[LeasedBatch] | Sequence[Batch], orders: int) -> RowIds:
    """What a line of the log says of batches: theirs, and in lists of their own their orders, each with its batch."""
    about = RowIds(batches, batch_id="pk", stream="stream", location_id="location_id")
    pairs = orders_in((batch.pk, batch.stream, batch.payload) for batch in batches)
    return about | RowIds(pairs, orders, order_id=0, of_batch=1)


def headers_of(batch_id: uuid.UUID, positions: Sequence[Sequence[int]], topic_id: str = "") -> dict[str, str]:
    """Headers of every published batch; its span is named by its id, so that a retry sends the same bytes."""
    return {
        "batch_id": str(batch_id),
        "traceparent": f"00-{batch_id.hex}-{batch_id.hex[:16]}-01",
        "correlation_id": str(batch_id),
        "topic_id": topic_id,
        "positions": as_json(positions),
    }


def trace_cut(headers: Mapping[str, str], links: Iterable[str], stream: str, orders: int, began: int) -> None:
    """The span that the traceparent of a batch's message names, once it is committed; `links` are those of its orders."""
    own = headers["traceparent"]
    with tracing.span("cut batch", "", links=links, known_as=own, began=began, stream=stream, orders=orders):
        pass


def content_hash(payload: str, headers: Mapping[str, str]) -> str:
    """What `verify` compares a batch with: of all that is published but the key, headers by name."""
    return digest("\x1f".join((payload, as_json(sorted(headers.items())))).encode())


def iso(at: datetime) -> str:
    """RFC 3339 in UTC with microseconds."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
