"""What a record of `messages-in` promises: as an envelope, or as Debezium's outbox event router brings it."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

import msgspec
from django.conf import settings

from config.formats import Opener, opener_for
from config.formats.registry import RegistryUnavailable
from config.gate import Gate, InvalidRecord
from config.kafka import Record
from config.kafka.debezium import Converted, converted, key_in, object_in, schema_of, shown, text_of, time_of
from config.payload import is_blank
from outbox.channels.handlers import handler_of, handlers
from outbox.letters.burial import Letter, Place, RecordOutcomes
from outbox.messages.publish import content_hash, encode

# What may be read of a record without a reveal, and what is named although its values are hidden.
READABLE = ("channel", "event_type", "aggregate", "idempotency_key", "expires_at")
NAMED = (
    "payload",
    *(f"payload.{name}" for name in ("to", "from", "subject", "text", "html", "headers", "topic", "key")),
)
# What says where it goes and what it is about. A key that was used for something else may be replaced.
LOCKED = ("channel", "event_type", "aggregate")

LENGTHS = {"channel": 50, "event_type": 100, "aggregate": 200, "idempotency_key": 200}
LONGEST_NUMBER = 2**63
# What a text of JSON inside JSON, a schema and the other fields take beside the payload itself.
OVERHEAD = 65_536
# The router's record is the payload alone: its headers say the rest, under the names of our fields or its own.
HEADERS = {**{name: name for name in READABLE}, "id": "idempotency_key", "eventType": "event_type"}
PRODUCER = "producer"
NOTHING = Converted(None)
EARLIEST = datetime(1973, 1, 1, tzinfo=UTC)  # of an expiry: a count of smaller units would be earlier
CLOCKS_DIFFER = 86_400  # seconds, at most


class Promise(NamedTuple):
    """A message that a record promises, as it is to be stored."""

    record: Record
    channel: str
    event_type: str
    aggregate: str
    text: str  # the payload, completed: byte for byte what every attempt sends
    given: Mapping[str, object]  # the payload as it came
    key: str  # behind the name of who may promise it: two services do not know each other's keys
    expires_at: datetime | None

    @property
    def digest(self) -> str:
        return content_hash(self.channel, self.event_type, self.aggregate, self.text)


def read(record: Record, topic: str) -> Promise:
    """The promise of a record of `topic` (its contract name). Raises InvalidRecord: a reason of the gate, or one of

    `missing_field` `wrong_field` `bad_expires_at` · `unknown_producer` `channel_not_allowed` · `payload_refused`.
    """
    return promised(record, lambda channel: allowed(topic, header_of(record, PRODUCER), channel))


def promised(record: Record, namespace_for: Callable[[str], str]) -> Promise:
    """The promise of a record, whoever wrote it: `namespace_for` a channel is the name before the keys of who may use it.

    Raises InvalidRecord, as `read` does; `namespace_for` may.
    """
    columns = envelope_of(record).columns
    channel, event_type, aggregate, key = (_text(columns, name) for name in LENGTHS)
    payload = _payload(columns)
    expires_at = _expiry(columns)
    namespace = namespace_for(channel)
    name = f"{namespace}/{key}"
    if len(name) > LENGTHS["idempotency_key"]:
        most = LENGTHS["idempotency_key"] - len(namespace) - 1
        raise InvalidRecord("wrong_field", f"`idempotency_key` has {len(key)} characters, at most {most} are accepted")
    try:
        whole = handler_of(channel).complete(payload, name, _written_at(record))
        text = encode(channel, event_type, aggregate, whole, name)
    except (ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidRecord("payload_refused", f"`payload` cannot be sent: {error}") from None
    return Promise(record, channel, event_type, aggregate, text, payload, name, expires_at)


class TypedFields(NamedTuple):
    """The fields of a record, unchecked and each with its type where the record says it."""

    columns: Mapping[str, Converted]
    place: str  # of the payload in the record: `$.payload`, `$` where it is all of it; empty inside a text

    @property
    def fields(self) -> dict[str, object]:
        return {name: column.value for name, column in self.columns.items()}


def envelope_of(record: Record) -> TypedFields:
    """What its value says and, of what that leaves out, its headers and key. Raises InvalidRecord for a value without an object."""
    body, place = _body(record)
    columns = {name: Converted(value, schema_of(body.schema, name)) for name, value in body.value.items()}
    if "payload" in columns:
        if "eventType" in columns:
            columns.setdefault("event_type", columns["eventType"])
        blank = {name for name, column in columns.items() if is_blank(column.value)}
        said = _said(record)
        columns |= {name: said[name] for name in said if name in blank or name not in columns}
        return TypedFields(columns, place and f"{place}.payload")
    if "idempotency_key" in (said := _said(record)):  # the router's own shape
        return TypedFields({"aggregate": text_of(record.key), **said, "payload": body}, place)
    return TypedFields(columns, place)


def _body(record: Record) -> tuple[Converted, str]:
    """The object in the value, and its place."""
    whole = gate_of(record.topic).decode(record.value)
    body, place = converted(whole), "$"
    if body.value is not whole:
        place = "$.payload"
    if isinstance(body.value, str):
        body, place = Converted(_object_in_text(body.value)), ""
    if not isinstance(body.value, dict):
        raise InvalidRecord("wrong_field", "the value is no JSON object")
    return body, place


def _object_in_text(text: str) -> object:
    try:
        return object_in(text, _gate(2 * settings.OUTBOX_MAX_BYTES).decode)
    except InvalidRecord as refusal:
        raise InvalidRecord("wrong_field", f"the value is a text and no JSON object: {refusal}") from None


def _said(record: Record) -> dict[str, Converted]:
    """What headers say, by the names of our fields; the last of a name counts."""
    said = {HEADERS[name]: text_of(value) for name, value in record.headers or () if name in HEADERS}
    return {name: column for name, column in said.items() if not is_blank(column.value)}


def _written_at(record: Record) -> float:
    """The Unix time of the record; now, where it has none, or a column of other parts of a second has made it."""
    now, written = time.time(), record.timestamp / 1000
    return written if 0 < written < now + CLOCKS_DIFFER else now


def stated(record: Record, name: str) -> str:
    """One of its texts, also of a record that is refused; empty where it says none."""
    try:
        return _text(envelope_of(record).columns, name)
    except (InvalidRecord, RegistryUnavailable):
        return ""


def header_of(record: Record, name: str) -> str:
    """The last header of this name as text; empty without one."""
    values = [text_of(value).value for known, value in record.headers or () if known == name and value]
    return values[-1] if values and isinstance(values[-1], str) else ""


def allowed(topic: str, producer: str, channel: str) -> str:
    """The name before the keys of whoever may promise messages of `channel` in `topic`; InvalidRecord if nobody may.

    A producer that MESSAGES_IN names has its own channels and its own keys; all others are the topic.
    """
    grants: Mapping[str, Sequence[str]] = settings.MESSAGES_IN.get(topic, {})
    known = producer if producer in grants else ""
    if known not in grants:
        who = f"the producer {shown(producer)}" if producer else "a record without the header `producer`"
        raise InvalidRecord("unknown_producer", f"MESSAGES_IN lets {who} promise nothing in {topic}")
    if channel not in grants[known]:
        place = f"{topic}@{known}" if known else topic
        raise InvalidRecord(
            "channel_not_allowed", f"MESSAGES_IN lets {place} use {', '.join(grants[known])}, not {shown(channel)}"
        )
    check_handled(channel)
    return f"{topic}@{known}" if known else topic


def check_handled(channel: str) -> None:
    if channel not in handlers():
        raise InvalidRecord("channel_not_allowed", f"HANDLERS has no channel {shown(channel)}")


def gate_of(topic: str) -> Gate[object]:
    """Of the records of a topic."""
    return _gate(OVERHEAD + 2 * settings.OUTBOX_MAX_BYTES, opener_for(topic))


def _gate(max_bytes: int, opener: Opener | None = None) -> Gate[object]:
    return Gate(JSON, max_bytes, opener)


JSON = msgspec.json.Decoder()


def _text(columns: Mapping[str, Converted], name: str) -> str:
    """A field that is a text; the number of a column counts as its digits, its bytes as their text or UUID."""
    column = columns.get(name, NOTHING)
    value = key_in(name, column.value, column.schema) if column.schema else column.value
    if value is None:
        raise InvalidRecord("missing_field", f"`{name}` is missing")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < LONGEST_NUMBER:
        value = str(value)
    if not isinstance(value, str) or not 0 < len(value) <= LENGTHS[name]:
        raise InvalidRecord("wrong_field", f"`{name}` is not a text of 1 to {LENGTHS[name]} characters")
    return value


def _payload(columns: Mapping[str, Converted]) -> dict[str, object]:
    """An object, or the text of one: a JSON column is a text to a connector, and bytes are base64."""
    given = columns.get("payload", NOTHING).value
    if given is None:
        raise InvalidRecord("missing_field", "`payload` is missing")
    try:
        payload = object_in(given, _gate(2 * settings.OUTBOX_MAX_BYTES).decode)
    except InvalidRecord as refusal:
        raise InvalidRecord(refusal.reason, f"`payload`: {refusal}") from None
    if not isinstance(payload, dict):
        raise InvalidRecord("wrong_field", "`payload` is no JSON object")
    return payload


def _expiry(columns: Mapping[str, Converted]) -> datetime | None:
    column = columns.get("expires_at", NOTHING)
    moment = None if is_blank(column.value) else time_of("expires_at", column.value, column.schema)
    if moment and moment < EARLIEST:
        raise InvalidRecord(
            "bad_expires_at",
            f"`expires_at` is {shown(column.value)}: that is in {moment.year}. Does it count seconds, or days?",
        )
    return moment


# -- The idempotency keys that a record names, also one that nobody can read: a letter of it may come back ----
KEY_FIELD = "idempotency_key"
# In JSON that is cut or broken, and in JSON inside a text of JSON.
WRITTEN = re.compile(rb'idempotency_key\\*"\s*:\s*\\*"?((?:[^"\\,}\s]|\\[^"]| )+)')


def keys_named_in(record: Record) -> set[str]:
    """As they are stored if the promise of the record is: behind its topic, and behind its producer."""
    topic = record.topic.removeprefix(settings.KAFKA_TOPIC_PREFIX)
    names = {topic, f"{topic}@{header_of(record, PRODUCER)}"}
    key = stated(record, KEY_FIELD)
    keys = {key} if key else _keys_seen(record)
    return {f"{name}/{stored}" for name in names for stored in keys}


def _keys_seen(record: Record) -> set[str]:
    headers = [text_of(value).value for name, value in record.headers or () if HEADERS.get(name) == KEY_FIELD and value]
    texts = [_unescaped(match[1]) for match in WRITTEN.finditer(record.value or b"")]
    return {text for text in (*headers, *texts) if text and isinstance(text, str)}


def _unescaped(text: bytes) -> str:
    try:
        return msgspec.json.decode(b'"%s"' % text, type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return text.decode("utf-8", "replace")


# -- A polled batch of them, each compared with the message that its key was first used for ------------------
FILLED_IN = object()  # in place of a value that the service did not give
CONFLICT = "the key was used for another message: its {} differs"
GONE = "the key was used for a message that is not kept any more, and that its digest does not show to be this one"


@dataclass
class Prepared:
    """A decoded batch: promises in the order of their offsets, and what was refused."""

    promises: list[Promise] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    read: Counter[Place] = field(default_factory=Counter)
    outside: Counter[Place] = field(default_factory=Counter)  # of a replay: older than keys are kept

    def leave_out(self, records: Sequence[Record]) -> None:
        """As if they had not been in the batch."""
        ids = set(map(id, records))
        self.promises = [promise for promise in self.promises if id(promise.record) not in ids]
        self.read.subtract((record.topic, record.partition) for record in records)


class StoredMessage(NamedTuple):
    """The message that a key stands for."""

    channel: str
    event_type: str
    aggregate: str
    text: str


def difference(promise: Promise, stored: StoredMessage | str) -> str:
    """Why a promise is not the message that its key was first used for; empty for a repeat.

    Of a message that retention took the digest is left.

    Fields that the service left out, and the channel filled in, may have been filled in differently then.
    """
    if isinstance(stored, str):
        return "" if stored == promise.digest else GONE
    for name in ("channel", "event_type", "aggregate"):
        if getattr(promise, name) != getattr(stored, name):
            return CONFLICT.format(name)
    if promise.text == stored.text:
        return ""
    before, now = msgspec.json.decode(stored.text), msgspec.json.decode(promise.text)
    unlike = sorted(
        name
        for name in before.keys() | now.keys()
        if not _says_the_same(promise.given.get(name, FILLED_IN), now.get(name), before.get(name))
    )
    return CONFLICT.format(f"payload ({unlike[0]})") if unlike else ""


def _says_the_same(given: object, now: object, before: object) -> bool:
    """Whether what a service gave, which is now stored as `now`, stands in `before`; what was filled in may differ."""
    if isinstance(given, dict) and isinstance(now, dict) and isinstance(before, dict):
        return now.keys() == before.keys() and all(
            _says_the_same(given.get(name, FILLED_IN), now[name], before[name]) for name in now
        )
    if given is FILLED_IN:
        return now is not None and before is not None
    if is_blank(given) and now != given:  # it counts as left out; before it did, it was stored as it came
        return before == given or (now is not None and before is not None)
    return bool(now == before)


@dataclass
class Taken(RecordOutcomes):
    """What a batch of promises became."""

    REPEATED = "repeated"

    stored: dict[int, UUID] = field(default_factory=dict)  # id of the record → of its message
    repeats: dict[int, UUID | None] = field(default_factory=dict)  # the same of records that were known
