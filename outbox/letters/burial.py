"""Buries records that failed for good: a letter per record, step and revision, counted by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import Any

from config.admin import humanize
from config.database.upsert import Upsert
from config.digest import END_BYTES, Excerpt, digest, keepable
from config.fields import IDENTIFIER_LENGTH
from config.gate import template_of
from config.kafka.records import Record
from config.telemetry import metrics
from outbox.letters.models import BurialKey, DeadLetter, FailureGroup, cause_in_words

LONGEST_ERROR = 10_000  # characters
LONGEST_TRACEBACK = 50_000
LONGEST_HEADERS = 100_000  # characters of all together
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
GROUPS = Upsert(
    FailureGroup,
    columns="fingerprint source step reason title open_count total_count",
    constants="first_seen last_seen",
    key="fingerprint",
    update={
        "open_count": "old.open_count + new.open_count",
        "total_count": "old.total_count + new.total_count",
        "last_seen": "new.last_seen",
    },
)


@dataclass(frozen=True)
class Letter:
    """A failure to be buried: the record as received, the step that failed, a stable reason, a text."""

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

    @property
    def fingerprint(self) -> str:
        """The same for letters of one cause: source, step, reason, and the error without its numbers."""
        text = "\x1f".join((self.source, self.step, self.reason, template_of(self.error)))
        return digest(text.encode())

    @property
    def key(self) -> tuple[str, str, int, int, str, int]:
        record = self.record
        return (self.topic_id, record.topic, record.partition, record.offset, self.step, self.revision)


def bury(letters: Sequence[Letter], group: str, now: datetime) -> Sequence[Letter]:
    """Write letters that are not known yet, in the transaction of the batch; returns the new ones.

    A record that is delivered again finds its burial key and changes nothing. Groups are counted last, in
    sorted order, because workers share them.
    """
    if not letters:
        return []
    rows = {letter.key: letter for letter in letters}
    keys = [(*key, digest(keepable(letter.record.value))) for key, letter in sorted(rows.items())]
    fresh = [rows[tuple(key)] for key in BURIAL.run(keys, {"group": group})]
    if not fresh:
        return []
    groups = _count_groups(fresh, now)
    DeadLetter.objects.bulk_create([_letter(letter, groups, group, now) for letter in fresh])
    for letter in fresh:
        metrics.BURIED.labels(letter.source, letter.reason).inc()
    return fresh


def _count_groups(letters: Sequence[Letter], now: datetime) -> dict[str, int]:
    counts = Counter(letter.fingerprint for letter in letters)
    examples = {letter.fingerprint: letter for letter in letters}
    GROUPS.run(
        [
            (fingerprint, example.source, example.step, example.reason, title_of(example), number, number)
            for fingerprint, number in sorted(counts.items())
            for example in [examples[fingerprint]]
        ],
        {"first_seen": now, "last_seen": now},
    )
    return dict(FailureGroup.objects.filter(fingerprint__in=counts).values_list("fingerprint", "pk"))


def title_of(letter: Letter) -> str:
    """The cause in words, for the list of groups."""
    return _storable(f"{cause_in_words(letter.reason)}: {humanize.quoted(template_of(letter.error))}", 300)


def _letter(letter: Letter, groups: dict[str, int], group: str, now: datetime) -> DeadLetter:
    record = letter.record
    return DeadLetter(
        group_id=groups[letter.fingerprint],
        source=letter.source,
        step=letter.step,
        reason=letter.reason,
        error=_storable(letter.error, LONGEST_ERROR),
        error_class=letter.error_class[:200],
        traceback=_storable(letter.traceback[-LONGEST_TRACEBACK:], LONGEST_TRACEBACK),
        consumer_group=group,
        topic=record.topic,
        topic_id=letter.topic_id,
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        revision=letter.revision,
        business_key=_storable(letter.business_key),
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
