"""Our form of a provider's event, and the reader of our own format."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from config.fields import IDENTIFIER_LENGTH
from config.payload import digest
from notifications.mail import delivery_status
from notifications.webhooks.fields import Malformed, Record, moment, ours, parsed, parts_of, record, text, text_of

OTHER = "other"  # opened, clicked, and whatever providers add: stored, without effect


@dataclass(frozen=True)
class Event:
    """One thing that happened to one mail, as a provider tells it."""

    kind: str  # one of delivery_status.STATUSES, or OTHER
    dedup_id: str
    raw: str
    message_id: uuid.UUID | None = None  # our message's id, if the provider returns it
    provider_message_id: str = ""
    recipient: str = ""
    occurred_at: datetime | None = None
    detail: str = ""


def identity(*parts: object) -> str:
    """A dedup id from the parts that identify an event, for providers whose own id changes or is missing."""
    return digest("\x1f".join(map(str, parts)).encode())


def unreadable(raw: bytes, why: str) -> Event:
    """An element of a list that tells nothing: it is kept, so that somebody can read it."""
    return Event(OTHER, identity(text_of(raw)), text_of(raw), detail=f"cannot be read: {why}")


def generic(body: bytes) -> list[Event]:
    """Our own format. Malformed if nothing in it can be read; beside others, what cannot be read is kept."""
    parts = parts_of(body)
    readable: dict[bytes, Event] = {}
    faults: dict[bytes, Malformed] = {}
    for raw in parts:
        try:
            readable[raw] = _generic(raw, record(parsed(raw)))
        except Malformed as error:
            faults[raw] = error
    if faults and not readable:
        raise next(iter(faults.values()))
    return [readable.get(raw) or unreadable(raw, str(faults[raw])) for raw in parts]


def _generic(raw: bytes, item: Record) -> Event:
    dedup_id, kind = item.get("id"), item.get("event")
    if not isinstance(dedup_id, str) or not 0 < len(dedup_id) <= IDENTIFIER_LENGTH:
        raise Malformed(f"an event needs an id of 1 to {IDENTIFIER_LENGTH} characters")
    if not isinstance(kind, str):
        raise Malformed("`event` is no text")
    return Event(
        kind if kind in delivery_status.STATUSES else OTHER, dedup_id, text_of(raw), ours(item.get("message_id")),
        text(item.get("provider_message_id")), text(item.get("recipient")), moment(item.get("occurred_at")),
        text(item.get("detail")),
    )  # fmt: skip
