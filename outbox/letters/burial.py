"""Buries records that failed for good: a letter per record, step and revision, counted by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import accumulate
from typing import Any
from uuid import UUID

from config.database.upsert import Upsert
from config.digest import END_BYTES, Excerpt, digest, keepable
from config.fields import IDENTIFIER_LENGTH
from config.kafka.records import Record
from config.telemetry import metrics
from config.telemetry.redaction import without_addresses
from config.uuid7 import uuid7
from outbox.groups import arrivals
from outbox.groups.arrivals import Cause, Group
from outbox.groups.fingerprint import template_of
from outbox.letters.models import BurialKey, DeadLetter

LONGEST_ERROR = 10_000  # characters
LONGEST_TRACEBACK = 50_000
LONGEST_HEADERS = 100_000  # characters of all together
REPLAY_OF = "replay_of"  # the header of a record that was sent again from a letter
STOPPED = "position"  # the step of a letter that stands for a stopped partition, not for a record
BURIAL = Upsert(
    BurialKey,
    columns="topic_id topic partition offset step revision payload_hash",
    constants="group",
    key="group topic_id topic partition offset step revision",
    update={},
    token="token",
    returning="topic_id topic partition offset step revision",
)


@dataclass(frozen=True)
class Letter:
    """A failure to be buried: the record as received, the step that failed, a stable reason, a text.

    `template` is the text without the names that it says, where whoever wrote it knows them.
    """

    source: str
    step: str
    reason: str
    error: str
    record: Record
    topic_id: str = ""
    revision: int = 0
    error_class: str = ""
    traceback: str = ""
    business_key: str = ""
    headers: Sequence[tuple[str, bytes]] = field(default=())
    template: str = ""
    id: UUID = field(default_factory=uuid7)
    predecessor: UUID | None = None  # the letter of the revision before

    @property
    def origin(self) -> UUID | None:
        """The letter that its record came back from, if it did."""
        return self.predecessor or getattr(self.record, "letter_id", None)

    @property
    def came_back(self) -> bool:
        """Whether a replay brought it back: at a later revision or, sent again, at a place of its own."""
        return bool(self.revision or self.origin) or any(name == REPLAY_OF for name, _ in self.record.headers or ())

    @cached_property
    def cause(self) -> Cause:
        """The same for letters of one group."""
        template = template_of(self.template or self.error, self.business_key)
        return Cause(self.source, self.step, self.reason, template)

    @property
    def key(self) -> tuple[str, str, int, int, str, int]:
        record = self.record
        return (self.topic_id, record.topic, record.partition, record.offset, self.step, self.revision)


def bury(letters: Sequence[Letter], group: str, now: datetime) -> Sequence[Letter]:
    """Write letters that are not known yet, in the transaction of the batch; returns the new ones.

    A record that is delivered again finds its burial key and changes nothing. Groups are counted last, because workers
    share them: what the transaction still writes keeps them locked.
    """
    if not letters:
        return []
    rows = {letter.key: letter for letter in letters}
    keys = [(*key, digest(keepable(letter.record.value))) for key, letter in sorted(rows.items())]
    fresh = [rows[tuple(key)] for key in BURIAL.run(keys, {"group": group})]
    if not fresh:
        return []
    groups = arrivals.groups_for((letter.cause for letter in fresh), now)
    DeadLetter.objects.bulk_create([_letter(letter, groups[letter.cause].pk, group, now) for letter in fresh])
    for letter in fresh:
        metrics.BURIED.labels(letter.source, letter.reason).inc()
    arrivals.count(_arrived(fresh, groups), now)
    return fresh


def _arrived(letters: Sequence[Letter], groups: Mapping[Cause, Group]) -> dict[Group, tuple[int, int]]:
    """Letters per group, and those of them whose record was a letter before: a replay brought them back."""
    new = Counter(groups[letter.cause] for letter in letters)
    returned = Counter(groups[letter.cause] for letter in letters if letter.came_back)
    return {group: (number, returned[group]) for group, number in new.items()}


def _letter(letter: Letter, group_id: int, group: str, now: datetime) -> DeadLetter:
    record = letter.record
    return DeadLetter(
        id=letter.id,
        predecessor=letter.origin,
        group_id=group_id,
        source=letter.source,
        step=letter.step,
        reason=letter.reason,
        error=_storable(without_addresses(letter.error), LONGEST_ERROR),
        error_class=letter.error_class[:200],
        traceback=_storable(without_addresses(letter.traceback[-LONGEST_TRACEBACK:]), LONGEST_TRACEBACK),
        consumer_group=group,
        topic=record.topic,
        topic_id=letter.topic_id,
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        revision=letter.revision,
        # The same from revision to revision, so that a search finds them all.
        business_key=_storable(getattr(record, "business_key", "") or letter.business_key),
        correlation_id=_header(record, "correlation_id"),
        created_at=now,
        updated_at=now,
        **_content(record),
    )


def _content(record: Record) -> dict[str, Any]:
    """Key, payload and headers, as far as one statement can hold them; what is cut is measured."""
    headers = [[_storable(name, 10_000), _printable(value)] for name, value in record.headers or ()]
    left = [header for header, size in zip(headers, _sizes(headers), strict=True) if size <= LONGEST_HEADERS]
    key, value = record.key, keepable(record.value)
    found: dict[str, Any] = {"key": key and key[:END_BYTES], "payload": value, "headers": left}
    if isinstance(value, Excerpt):
        found.update(payload_size=value.size, payload_sha256=value.sha256)
    elif len(left) < len(headers) or len(key or b"") > END_BYTES:
        found.update(payload_size=len(value or b""), payload_sha256="")
    return found


def _sizes(headers: Sequence[Sequence[str]]) -> Iterator[int]:
    """The characters of the headers up to each one."""
    return accumulate(sum(map(len, header)) for header in headers)


def _header(record: Any, name: str) -> str:
    for key, value in record.headers or ():
        if key == name:
            return _printable(value)[:100]
    return ""


def _printable(value: bytes | None) -> str:
    return _storable((value or b"").decode("utf-8", "backslashreplace"), 10_000)


def _storable(text: str, length: int = IDENTIFIER_LENGTH) -> str:
    # PostgreSQL stores no NUL in a text, and writing a letter must not fail.
    return text.replace("\x00", "\ufffd")[:length]
