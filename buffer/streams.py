"""Streams: which messages are buffered, when their buckets are due, and what the batch says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from typing import Annotated, Any
from uuid import UUID

import msgspec
from django.conf import settings
from django.utils.module_loading import import_string

from config.environment.env import BadSetting
from config.fields import IDENTIFIER_LENGTH
from config.formats import opener_of
from config.gate import Gate

GROUP = "buffer-ingest"
Identifier = Annotated[str, msgspec.Meta(min_length=1, max_length=IDENTIFIER_LENGTH)]
Items = list[dict[str, object]]  # of a batch: `sku` and `quantity`
Quantity = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]


class Item(msgspec.Struct):
    sku: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    quantity: Quantity


class TransferRequest(msgspec.Struct):
    """One order short of stock at one location; unknown fields are kept in the stored payload."""

    order_id: Identifier
    location_id: Identifier
    ordered_at: Annotated[datetime, msgspec.Meta(tz=True)]
    items: Annotated[list[Item], msgspec.Meta(min_length=1)]


# What may be read of a request, and of a batch of them, without a reveal.
READABLE = (
    "order_id", "location_id", "ordered_at", "items[].sku", "items[].quantity", "batch_id", "flushed_at", "order_ids[]",
    "supplement_of",
)  # fmt: skip


# What says which order it is: an edited copy says the same. The order's own name stands first.
LOCKED = ("order_id", "location_id", "ordered_at")


# What is read in a published batch.
SENT = [("batch_id", UUID), ("location_id", str), ("order_ids", list[str])]


class Stream:
    """One topic that is debounced into another. Subclass it, name it in `STREAMS` (docs/adding.md).

    Options in settings: TOPIC, OUTPUT (contract names, without prefix) and, to differ from the defaults,
    IDLE_SECONDS, CAP_SECONDS, MAX_BATCH, MAX_BYTES, FORMAT, FORMAT_OPTIONS.
    """

    message: type[object] = TransferRequest
    words: Mapping[str, str] = {}  # what its batches call `location_id`, `order_ids` or `items`
    readable: Sequence[str] = READABLE
    locked: Sequence[str] = LOCKED

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.name, self.options = name, options
        self.topic: str = options["TOPIC"]
        self.output: str = options["OUTPUT"]
        self.idle = timedelta(seconds=options.get("IDLE_SECONDS", settings.BUFFER_IDLE_SECONDS))
        self.cap = timedelta(seconds=options.get("CAP_SECONDS", settings.BUFFER_CAP_SECONDS))
        self.max_batch: int = options.get("MAX_BATCH", settings.BUFFER_MAX_BATCH)
        self.max_bytes: int = options.get("MAX_BYTES", settings.BUFFER_MAX_BYTES)
        if self.cap < self.idle:
            raise BadSetting(f"STREAMS[{name!r}]: CAP_SECONDS must not be shorter than IDLE_SECONDS")

    @cached_property
    def gate(self) -> Gate[Any]:
        return Gate.of(self.message, settings.BUFFER_MAX_EVENT_BYTES, opener_of(self.options))

    def samples(self, seed: int) -> Iterator[tuple[str, Mapping[str, object]]]:
        """(key, message) of endless plausible traffic for a demo, the same for the same seed; none by default."""
        return iter(())

    def word(self, name: str) -> str:
        return self.words.get(name, name)

    def in_words(self, message: Mapping[str, object]) -> dict[str, object]:
        """A batch as its consumers read it."""
        return {self.word(name): value for name, value in message.items()}

    @cached_property
    def sent(self) -> msgspec.json.Decoder[Any]:
        """Reads `batch_id`, `location_id` and `order_ids` in a batch of this stream, whatever it calls them."""
        return msgspec.json.Decoder(msgspec.defstruct("SentBatch", SENT, rename=dict(self.words)))

    def month_of(self, message: Any) -> int:
        """The partition key: the UTC month of the order as yyyymm, a function of the order alone.

        With a month from any clock, a redelivery after midnight would be a second row.
        """
        at: datetime = message.ordered_at
        if at.tzinfo is not UTC:
            try:
                at = at.astimezone(UTC)
            except OverflowError:
                return 0
        return at.year * 100 + at.month

    def summarise(self, payloads: Iterable[str]) -> Items:
        """Quantities of many messages, summed by SKU and sorted."""
        sums: defaultdict[str, int] = defaultdict(int)
        for payload in payloads:
            for item in self.gate.decoder.decode(payload).items:
                sums[item.sku] += item.quantity
        return [{"sku": sku, "quantity": sums[sku]} for sku in sorted(sums)]

    def difference(self, new: str, old: str | None, missing: Iterable[str] = ()) -> Items:
        """Signed quantities by SKU that turn `old` (None: nothing was sent) into `new`; zeros are left out.

        `missing` holds messages of supplements that `old` counts although they were never sent.
        """
        sums: defaultdict[str, int] = defaultdict(int)
        for sign, payload in ((1, new), (-1, old)):
            for item in self.gate.decoder.decode(payload).items if payload else ():
                sums[item.sku] += sign * item.quantity
        for message in missing:
            for unsent in msgspec.json.decode(message)[self.word("items")]:
                sums[unsent["sku"]] += unsent["quantity"]
        return [{"sku": sku, "quantity": sums[sku]} for sku in sorted(sums) if sums[sku]]


class TransferRequests(Stream):
    """Seed 0: transfer requests of one warehouse become one batch."""


@cache
def streams() -> dict[str, Stream]:
    """The streams of `settings.STREAMS`, by name."""
    return {name: import_string(options["CLASS"])(name, options) for name, options in settings.STREAMS.items()}


def chosen(names: Sequence[str] | None) -> list[Stream]:
    """The named streams, or all; an unknown name is a BadSetting that lists the known ones."""
    known = streams()
    for name in names or ():
        if name not in known:
            raise BadSetting(f"stream {name!r} is not one of {', '.join(known)}")
    return [known[name] for name in names or known]
