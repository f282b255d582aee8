"""What becomes of a record: its bytes are a message or a letter; a message goes live, waits, expires or is forwarded."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Protocol

import msgspec

from config.gate import InvalidRecord
from config.kafka import Record, Replayed
from config.kafka.client import MAX_REQUEST_BYTES
from outbox.letters.burial import Letter
from throttler.customers.policy_cache import CustomerTerms
from throttler.engine.partition import AGAIN, OwnedPartition
from throttler.lanes.state import LaneState
from throttler.limits.limiter import take_one
from throttler.messages import FORWARDED, Notification, NotificationGate, created_us, day_of, expires_us, id_in
from throttler.overflow.store import OverflowRow


# -- What becomes of each record -----------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Decoded:
    """A record and what the gate says of it: a message with its times (µs; expires 0: its customer's TTL), or a letter."""

    record: Record
    message: Notification | None = None
    created_us: int = 0
    expires_us: int = 0
    letter: Letter | None = None


@dataclass
class Decisions:
    """What one transaction will carry, in the order in which it was decided."""

    live: list[Decoded] = field(default_factory=list)
    expired: list[tuple[Decoded, str]] = field(default_factory=list)
    forwarded: list[tuple[Decoded, int]] = field(default_factory=list)
    rows: list[tuple[Decoded, OverflowRow]] = field(default_factory=list)
    drained: list[tuple[OwnedPartition, OverflowRow]] = field(default_factory=list)
    overdue: list[tuple[OwnedPartition, OverflowRow, str]] = field(default_factory=list)
    letters: list[tuple[Decoded, Letter]] = field(default_factory=list)
    changed: list[tuple[OwnedPartition, LaneState]] = field(default_factory=list)

    def touch(self, part: OwnedPartition, lane: LaneState) -> None:
        """The changelog of this transaction has to say what the lane is now."""
        part.touched = True
        if not lane.changed:
            lane.changed = True
            self.changed.append((part, lane))

    @property
    def size(self) -> int:
        """Messages and letters, wherever they go."""
        stored = len(self.rows) + len(self.letters)
        sent = len(self.live) + len(self.expired) + len(self.forwarded)
        return stored + sent + len(self.drained) + len(self.overdue)


class Output(Protocol):
    """This process's share of the rate of all; None: there is no such limit."""

    def has_room(self, now: int) -> bool:
        """Whether one more may go live: not before those who wait for their turn."""

    def spend(self, count: int) -> None: ...


class Decider:
    """Decides record by record; all state is in the partition and its lanes. One thread."""

    def __init__(
        self, terms_of: Callable[[str], CustomerTerms], default_ttl_us: int, right_partition: Callable[[str], int],
        row_of: Callable[[Decoded, Any], OverflowRow],
    ) -> None:  # fmt: skip
        self.terms_of, self.default_ttl_us = terms_of, default_ttl_us
        self.right_partition, self.row_of = right_partition, row_of
        self.output: Output | None = None

    def decide(self, part: OwnedPartition, decoded: Decoded, now: int, out: Decisions) -> None:
        """Take up one record; what the last owner has decided about is stored again at most."""
        offset = decoded.record.offset
        fresh = offset >= part.decided
        part.read, part.touched = offset + 1, True
        if fresh:
            part.decided = offset + 1
            part.totals["read"] += 1
        if (message := decoded.message) is None:
            self._park(part, decoded, fresh, out)
            return
        lane = part.lanes.get(message.customer_id)
        if lane is None:
            lane = part.lanes[message.customer_id] = LaneState(message.customer_id)
        if not fresh:
            if lane.waits_for(offset):
                lane.waits += 1
                # Under the newest day: what came before it may be drained, and the lane read from a later day on, before it.
                out.rows.append((decoded, self.row_of(decoded, lane.newest)))
            return
        self._decide_new(part, lane, decoded, now, out)

    def _park(self, part: OwnedPartition, decoded: Decoded, fresh: bool, out: Decisions) -> None:
        assert decoded.letter is not None  # noqa: S101 (for the type checker)
        out.letters.append((decoded, decoded.letter))
        part.totals["parked"] += fresh
        if fresh and decoded.record.offset < part.decided_before:
            part.totals[AGAIN] += 1

    def _decide_new(self, part: OwnedPartition, lane: LaneState, decoded: Decoded, now: int, out: Decisions) -> None:
        offset = decoded.record.offset
        if self._belongs_elsewhere(part, lane, decoded, out):
            lane.seen = offset
            return
        out.touch(part, lane)
        terms = self.terms_of(lane.customer)
        if lane.backlog:  # only the drain judges expiry, so that what waits is exactly the valid input
            self._buffer(part, lane, decoded, now, out)
        elif reason := reason_to_expire(decoded.created_us, decoded.expires_us, terms, self.default_ttl_us, now):
            lane.seen = offset
            out.expired.append((decoded, reason))
            part.totals["expired_on_arrival"] += 1
        elif (
            not terms.held
            and (not self.output or self.output.has_room(now))
            and take_one(terms.rates, lane.limiter, now)
        ):
            if self.output:
                self.output.spend(1)
            lane.seen = offset
            out.live.append(decoded)
            part.totals["live"] += 1
        else:
            self._buffer(part, lane, decoded, now, out)

    def _buffer(self, part: OwnedPartition, lane: LaneState, decoded: Decoded, now: int, out: Decisions) -> None:
        day = lane.buffer(decoded.record.offset, day_of(now))
        lane.waits += 1
        out.rows.append((decoded, self.row_of(decoded, day)))
        part.totals["buffered"] += 1

    def _belongs_elsewhere(self, part: OwnedPartition, lane: LaneState, decoded: Decoded, out: Decisions) -> bool:
        """Forward once what another partition should have: by hand, or by a producer with another hash."""
        if lane.misplaced is None:
            lane.misplaced = self.right_partition(lane.customer) != part.number
        if not lane.misplaced or is_forwarded(decoded.record.headers):
            return False
        out.forwarded.append((decoded, self.right_partition(lane.customer)))
        part.totals["forwarded"] += 1
        return True


def reason_to_expire(created_us: int, expires_us: int, terms: CustomerTerms, default_ttl_us: int, now: int) -> str:
    """`ttl`, `purged`, or "" while the message may still leave. A message that names no TTL takes its customer's now."""
    if created_us < terms.purge_before_us:
        return "purged"
    end = expires_us or created_us + (terms.ttl_us or default_ttl_us)
    return "ttl" if end <= now else ""


def is_forwarded(headers: Headers | None) -> bool:
    """Whether another partition has passed the record on already: it is then handled where it is."""
    return any(name == FORWARDED for name, _value in headers or ())


# -- From bytes to a message or a letter ---------------------------------------------------------------------
SOURCE = "throttler"
OVERHEAD = 1_024  # of what is added on the way out: `throttled` or `reason`, `source`, the batch around it
Headers = Sequence[tuple[str, bytes | None]]


def decode(record: Record, gate: NotificationGate, topic_id: str) -> Decoded:
    """The message, as JSON, and its times, or the letter that says why it is none. Never raises for bad input."""
    opened, value = record, record.value
    try:
        value = gate.json.opened(value)
        if value is not record.value:
            opened = Replayed(
                record.topic, record.partition, record.offset, record.timestamp, record.key, value, record.headers
            )
        message = gate.judge(value)
        _check_size(opened)
    except InvalidRecord as refusal:
        letter = Letter(SOURCE, "decode", refusal.reason, str(refusal), record, topic_id, business_key=id_in(value))
        return Decoded(record, letter=letter)
    created = created_us(message, record.timestamp)
    return Decoded(opened, message, created, expires_us(message, created))


def _check_size(record: Record) -> None:
    """What leaves is a little larger than what came: it must still be taken by the broker."""
    headers = sum(len(name) * 4 + len(value or b"") + 10 for name, value in record.headers or ())
    size = len(record.value or b"") + len(record.key or b"") + headers + OVERHEAD
    if size > MAX_REQUEST_BYTES:
        raise InvalidRecord("too_large", f"{size} bytes with headers, the broker takes {MAX_REQUEST_BYTES}")


def refusal(record: Record, step: str, reason: str, topic_id: str, notification_id: str) -> Letter:
    """The letter of a record that the broker never takes on its way out: of "send" at once, of "drain" later."""
    return Letter(SOURCE, step, "broker_refused", reason, record, topic_id, business_key=notification_id)


def record_of(row: OverflowRow, topic: str) -> Record:
    """The record that a row was made of; its key as it leaves, its time that of the message."""
    return Replayed(
        topic, row.partition, row.offset, row.created_us // 1000, row.customer_id.encode(), row.payload,
        unpacked(row.headers),
    )  # fmt: skip


def row_of(decoded: Decoded, topic_id: str, day: date) -> OverflowRow:
    """The row of a message that waits."""
    record, message = decoded.record, decoded.message
    assert message is not None and record.value is not None  # noqa: S101, PT018 (only messages wait)
    return OverflowRow(
        record.partition, message.customer_id, topic_id, record.offset, day, bytes(record.value),
        packed(record.headers), decoded.created_us, decoded.expires_us, message.notification_id,
    )  # fmt: skip


def packed(headers: Headers | None) -> bytes:
    """Headers as a row keeps them: JSON of [[name, base64 or null], …], or empty."""
    if not headers:
        return b""
    return msgspec.json.encode(
        [[name, None if value is None else b64encode(value).decode()] for name, value in headers]
    )


def unpacked(headers: bytes) -> list[tuple[str, bytes | None]]:
    """The headers of a row."""
    if not headers:
        return []
    pairs = msgspec.json.decode(headers, type=list[tuple[str, str | None]])
    return [(name, None if value is None else b64decode(value)) for name, value in pairs]
