"""Change capture of the outbox table by Debezium: what a record says, whether the path lives, and the letters of it."""

from __future__ import annotations

import re
import threading
import time
from base64 import b64decode
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db.models import Max

from config.database.clock import database_now
from config.fields import smallest_uuid7
from config.gate import Gate, InvalidRecord
from config.kafka import Record, topic_name
from config.kafka.debezium import Change, change_of, shown, time_of
from config.letters import Effect, Judgement, Letters, Refusal
from config.telemetry.redaction import masked_error
from outbox.bookkeeping.models import Watermark
from outbox.channels.models import ChannelState
from outbox.delivery.candidates import lower_bound
from outbox.letters.burial import STOPPED, Letter, bury
from outbox.letters.models import DeadLetter
from outbox.letters.redelivery import failed_again, record_of, would_refuse
from outbox.messages.models import FLOW, LOCKED, NAMED, READABLE, UNFINISHED, OutboxMessage
from outbox.messages.retention import kept_since

# -- What Debezium says about the outbox table: a record of its topic becomes a hint, a skip or a refusal ----
# A hint names a row that is worth claiming; it is never what is sent (DESIGN §6). So the same row twice, a snapshot
# that repeats old rows, or a copy from another connector is harmless, and every shape Debezium can give a row is
# taken: in its envelope or without, with its schema or without, ids and times as each database writes them.
# A row of three columns takes 150 bytes; its envelope with the schema 5 kB.
MAX_BYTES = 65_536
LONGEST_EVENT_TYPE = 100
UUID_TEXT = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
# 16 bytes in base64, also in its alphabet for addresses: what binary(16) looks like in JSON.
UUID_BYTES = re.compile(r"[A-Za-z0-9+/_-]{22}==")
URL_SAFE = str.maketrans("-_", "+/")

GATE: Gate[dict[str, object]] = Gate.of(dict[str, Any], MAX_BYTES)


class Hint(NamedTuple):
    """A committed insert: which row, of which kind, and when it was written as far as the record tells."""

    id: UUID
    event_type: str
    created_at: datetime | None


class Skip(StrEnum):
    """A record about something that is not an insert: no work, and no error."""

    TOMBSTONE = "tombstone"
    UPDATE = "update"
    DELETE = "delete"
    TRUNCATE = "truncate"
    MESSAGE = "message"


SKIPPED = {"u": Skip.UPDATE, "d": Skip.DELETE, "t": Skip.TRUNCATE, "m": Skip.MESSAGE}


def read_change(value: bytes | None) -> Hint | Skip:
    """The verdict on one record; raises InvalidRecord with a reason of the gate, or one of

    `no_row` neither a row nor an envelope · `unknown_operation` · `bad_id` · `bad_event_type` · `bad_created_at`.
    """
    change = None if value is None else change_of(GATE.decode(value))
    if change is None:
        return Skip.TOMBSTONE
    return SKIPPED.get(change.operation) or hint_of(change)


def hint_of(change: Change) -> Hint:
    row = change.row
    if not isinstance(row, dict) or "id" not in row:
        raise InvalidRecord("no_row", "neither a row with an `id` nor an envelope with `after`")
    event_type = row.get("event_type")
    if not isinstance(event_type, str) or not 0 < len(event_type) <= LONGEST_EVENT_TYPE:
        raise InvalidRecord("bad_event_type", f"`event_type` is not a text of 1 to {LONGEST_EVENT_TYPE} characters")
    return Hint(
        uuid_of(row["id"]), event_type, time_of("created_at", row.get("created_at"), change.types.get("created_at"))
    )


def uuid_of(value: object) -> UUID:
    """Dashed (uuid), 32 hex digits (char(32)) or base64 (binary(16)); always of version 7, as the outbox makes them."""
    if isinstance(value, str) and UUID_TEXT.fullmatch(value):
        pk = whole(UUID(value))
    elif isinstance(value, str) and UUID_BYTES.fullmatch(value):
        pk = UUID(bytes=b64decode(value.translate(URL_SAFE)))
    else:
        raise InvalidRecord("bad_id", f"`id` is {shown(value)}, not a UUID as any connector writes it")
    if pk.version != 7:
        # Its time decides the partition, and how far the CDC path has come.
        raise InvalidRecord("bad_id", f"`id` is {shown(value)}, not a UUID of version 7")
    return pk


def message_in(record: Record) -> str:
    """The id of the message that a record names, in its value or its key, also where the gate takes neither; or "".

    Nothing but an id: what else stands there is nobody's to show.
    """
    for part in (record.value, record.key):
        try:
            change = change_of(GATE.decode(part))
            return str(uuid_of(change.row["id"] if change else None))
        except (InvalidRecord, TypeError, KeyError):
            continue
    return ""


def whole(read: UUID) -> UUID:
    """The id as it stands in the table: one of 256 comes from MariaDB with its end at its beginning.

    The binary log leaves out zero bytes at the end of a fixed-length value, and Debezium (3.5.0) fills a native
    uuid up from the front. What was moved may look like version 7, too (one of 4096), but then of a time before
    2004: no id of the outbox begins with a zero byte.
    """
    restored = UUID(bytes=read.bytes.lstrip(b"\0").ljust(16, b"\0"))
    return restored if restored.version == 7 else read


# -- Whether the CDC path is alive ---------------------------------------------------------------------------
# Judged by what it did and never by consumer lag, which stays 0 when Debezium is dead.
CDC_GROUP = "outbox-listen"
HEARTBEAT = timedelta(seconds=10)
REMEMBER = 1.0  # seconds
STORED_WITHIN = 2.0  # seconds after it was brought; a listener does it once a second


def is_healthy(channel: str, now: datetime) -> bool:
    """The listener's heartbeat is fresh; what was written longer ago than the grace period has been brought, and none of
    it that is due lies about.

    A listener beats on when Debezium is dead, and then nothing lies about for long, because the poller sends it: only
    what was brought shows it.
    """
    beats = Watermark.objects.of_group(CDC_GROUP).running().filter(updated_at__gt=now - HEARTBEAT)
    if not beats.exists() or _age_beyond(_newest(), now) > settings.OUTBOX_GRACE_SECONDS + STORED_WITHIN:
        return False
    overdue = now - timedelta(seconds=settings.OUTBOX_GRACE_SECONDS)
    return not OutboxMessage.objects.due(channel, overdue).from_id(lower_bound.read()).older_than(overdue).exists()


class Grace:
    """How old a message must be before the poller takes it from CDC: nothing at all unless CDC is healthy."""

    def __init__(self, channel: str) -> None:
        self.channel = channel
        self._value = timedelta(0)
        self._until = 0.0
        self._lock = threading.Lock()

    def read(self) -> timedelta:
        with self._lock:
            if time.monotonic() >= self._until:
                healthy = is_healthy(self.channel, database_now())
                self._value = timedelta(seconds=settings.OUTBOX_GRACE_SECONDS if healthy else 0)
                self._until = time.monotonic() + REMEMBER
            return self._value


def note_seen(newest_ms: int, now: datetime) -> None:
    """Store that the CDC path has brought everything up to an id of this time.

    At most up to now: an id from the far future would make CDC look alive for ever.
    """
    moment = datetime.fromtimestamp(min(newest_ms / 1000, now.timestamp()), UTC)
    ChannelState.objects.exclude(cdc_seen_at__gte=moment).update(cdc_seen_at=moment)


def cdc_lag(now: datetime) -> float | None:
    """Age in seconds of the oldest message whose id lies beyond what CDC has brought, 0.0 when none does; None
    where no listener has ever brought anything."""
    newest = _newest()
    return None if newest is None else _age_beyond(newest, now)


def _newest() -> datetime | None:
    newest: datetime | None = ChannelState.objects.aggregate(newest=Max("cdc_seen_at"))["newest"]
    return newest


def _age_beyond(newest: datetime | None, now: datetime) -> float:
    """Seconds since the first message was written that is younger than `newest`; where that is None, any message."""
    lowest = 0 if newest is None else int(newest.timestamp() * 1000) + 1
    beyond = OutboxMessage.objects.from_id(smallest_uuid7(lowest)).order_by("id")
    oldest = beyond.values_list("created_at", flat=True).first()
    return max(0.0, (now - oldest).total_seconds()) if oldest else 0.0


# -- Letters of change capture -------------------------------------------------------------------------------
# The hint is read again, and the state of the message that it names proves it.
DECODE = "decode"
STEPS = (DECODE, "store", STOPPED)  # in which a record fails
NO_HINT = "the record names no new message: nothing is missing"
READ = "read; the poller takes what it hints at"


class HintLetters(Letters[DeadLetter]):
    """The dead letters of records of the change capture. A hint sends nothing that the poller would not send."""

    steps = STEPS
    readable = READABLE
    named = NAMED
    locked = LOCKED

    def judge(self, letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Judgement]:
        return {letter.pk: _judged(letter) for letter in letters}

    def take_back(self, letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Effect]:
        """Read the hints; the poller claims what they name in any case. What is still no hint is a letter once more."""
        effects: dict[UUID, Effect] = {}
        failed: list[Letter] = []
        for letter in letters:
            try:
                hint = _read(letter)
            except InvalidRecord as refusal:
                place = (record_of(letter), letter.topic_id, letter.revision + 1)
                failed.append(Letter(FLOW, DECODE, refusal.reason, str(refusal), *place))
            except Refusal as refusal:
                effects[letter.pk] = Effect("refused", str(refusal))
            else:
                effects[letter.pk] = Effect("waiting", READ, carrier=hint) if hint else Effect("resolved", NO_HINT)
        bury(failed, topic_name(CDC_GROUP), now)
        return effects | failed_again(failed)

    def effect(self, letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Effect]:
        """Whether the messages they name are in a final state; retention takes only those that are."""
        messages = OutboxMessage.objects.among([letter.carrier for letter in letters if letter.carrier])
        states = dict(messages.values_list("id", "state"))
        oldest = kept_since(now)
        return {letter.pk: _effect(letter.carrier, states, oldest) for letter in letters}

    def why_not_edited(self, letter: DeadLetter) -> str:
        return "It is a hint of change capture: the poller takes its message in any case."


def _effect(message_id: UUID | None, states: dict[UUID, str], oldest: UUID) -> Effect:
    if message_id is None:
        return Effect("resolved", NO_HINT)
    state = states.get(message_id)
    if state is None:
        gone = message_id < oldest
        return Effect("resolved", "its message ended and was dropped") if gone else Effect("waiting", "no such message")
    return Effect("waiting" if state in UNFINISHED else "resolved", f"its message is {state.replace('_', ' ')}")


def _read(letter: DeadLetter) -> UUID | None:
    """The message that the record hints at; None for one that is about something else."""
    change = read_change(record_of(letter).value)
    return change.id if isinstance(change, Hint) else None


def _judged(letter: DeadLetter) -> Judgement:
    try:
        hint = _read(letter)
    except InvalidRecord as refusal:
        return Judgement(False, "Fails again.", masked_error(str(refusal)), "warn")
    except Refusal as refusal:
        return would_refuse(str(refusal))
    return Judgement(True, "The hint is read.", f"It names message {hint}." if hint else "It names no message.", "ok")
