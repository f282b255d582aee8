"""Records and batches as they travel from Kafka to a handler, and their headers as rows of a database keep them."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from config.kafka.positions import Mark, TopicPartition


class Record(Protocol):
    """What a handler may read of a record; the client's own object fits, so nothing is copied per record."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


@dataclass(frozen=True)
class Replayed:
    """A record that is handled again, at its original position."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass
class Tally:
    """How a handler's `write` counted a replayed batch; records in none of the counts were stored before."""

    applied: int = 0
    parked: int = 0  # letters that were not there before
    outside: int = 0  # older than what the flow keeps
    changed: Mapping[Hashable, Sequence[Record]] = field(default_factory=dict)  # by key of `keys_of`


@dataclass
class RecordBatch:
    """Records of one poll, in offset order within each partition; `prepared` is the handler's own decoding."""

    records: Sequence[Record]
    topic_ids: dict[str, str]
    prepared: Any = None
    revision: int = 0  # 0 straight from Kafka; replays count up
    from_log: bool = False  # read again from the topic, not sent back from a dead letter
    tally: Tally = field(default_factory=Tally)
    ends: dict[TopicPartition, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for record in self.records:
            self.ends[record.topic, record.partition] = record.offset + 1

    @property
    def letter_revision(self) -> int:
        """The revision in a dead letter's key: 0 for records from the topic, so that reading them again adds none."""
        return 0 if self.from_log else self.revision

    @property
    def marks(self) -> dict[TopicPartition, Mark]:
        """The positions after this batch."""
        return {
            (topic, partition): Mark(self.topic_ids.get(topic, ""), end)
            for (topic, partition), end in self.ends.items()
        }

    def halves(self) -> Iterator[RecordBatch]:
        """Two batches with the same records in the same order."""
        middle = len(self.records) // 2
        for part in (self.records[:middle], self.records[middle:]):
            yield RecordBatch(part, self.topic_ids, revision=self.revision, from_log=self.from_log)


def cut(records: Sequence[Record], most_bytes: int) -> Iterator[Sequence[Record]]:
    """Split a poll so that no statement grows beyond what a server takes as one packet."""
    start = size = 0
    for index, record in enumerate(records):
        length = len(record.value or b"")
        if size + length > most_bytes and index > start:
            yield records[start:index]
            start, size = index, 0
        size += length
    if start < len(records):
        yield records[start:]


# -- Headers as rows of a database keep them: in their order, byte for byte, and readable ---------------------
# A row is `[name, text]` where the text says all; `[name, null]` for a header without a value; otherwise
# `[name, what can be shown, base64]`, and where the name itself cannot be stored, `[…, base64, base64 of the name]`.
Header = tuple[str, bytes | None]
HeaderRow = list[str | None]
LONGEST_SHOWN = 1_000  # characters of a value that is no text


def header_rows(headers: Iterable[Header]) -> list[HeaderRow]:
    """What to store; databases take all of it."""
    return [_row(name, value) for name, value in headers]


def headers_from_rows(rows: Iterable[Sequence[Any]]) -> list[Header]:
    """The headers again, as they were received."""
    return [_header(*row) for row in rows]


def shown_headers(rows: Iterable[Sequence[Any]]) -> list[tuple[str, str]]:
    """Name and text of each, for people."""
    return [(row[0], row[1] or "") for row in rows]


def exact_text(value: bytes) -> str | None:
    """The text that stands for exactly these bytes; None: they are no text that every database takes."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else text  # PostgreSQL stores no NUL


def header_text(headers: Iterable[Header] | None, name: str) -> str:
    """The text of the last header of this name; empty without one."""
    return next(
        (exact_text(value) or "" for known, value in reversed(list(headers or ())) if known == name and value), ""
    )


def printable_value(value: bytes | None) -> str:
    """The nearest text that can be stored."""
    return _without_nul((value or b"").decode("utf-8", "backslashreplace"))


def _row(name: str, value: bytes | None) -> HeaderRow:
    text = None if value is None else exact_text(value)
    if "\x00" in name:
        exact = None if value is None else _base64(value)
        return [_without_nul(name), printable_value(value)[:LONGEST_SHOWN], exact, _base64(name.encode())]
    if value is None or text is not None:
        return [name, text]
    return [name, printable_value(value)[:LONGEST_SHOWN], _base64(value)]


def _header(name: str, text: str | None, *exact: str | None) -> Header:
    if not exact:
        return name, None if text is None else text.encode()
    value = None if exact[0] is None else b64decode(exact[0])
    return b64decode(exact[1] or "").decode() if len(exact) > 1 else name, value


def _base64(content: bytes) -> str:
    return b64encode(content).decode()


def _without_nul(text: str) -> str:
    return text.replace("\x00", "\ufffd")


class RecordReceipt(NamedTuple):
    """Where a record lies: `partition/offset@topic id`.

    Without the id where the broker has none, and where an older version has sent it: another topic of that name has
    the same places.
    """

    partition: int
    offset: int
    topic_id: str = ""

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset}" + (f"@{self.topic_id}" if self.topic_id else "")

    @classmethod
    def of(cls, text: str) -> RecordReceipt | None:
        """What a message's receipt says; None if that is none of this channel."""
        place, _, topic_id = text.partition("@")
        partition, _, offset = place.partition("/")
        return cls(int(partition), int(offset), topic_id) if partition.isdigit() and offset.isdigit() else None
