"""Buries records that failed for good: a letter per record, step and revision; the base of all handlers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar
from uuid import UUID

from django.db import connection, transaction

from config.database.retry import Remedy, remedy_for
from config.database.upsert import Upsert
from config.fields import in_ascii, storable, uuid7s_from
from config.kafka import Mark, Record, RecordBatch, Replayed, Tally, topic_name
from config.kafka.consumer import Handler
from config.kafka.positions import TopicPartition
from config.kafka.records import Header, HeaderRow, header_rows, printable_value
from config.partitions import ensure_partitions
from config.payload import END_BYTES, Excerpt, digest, keepable
from config.telemetry import metrics
from config.telemetry.logs import RowIds, log, log_committed
from config.telemetry.redaction import error_text, without_addresses
from config.telemetry.tracing import trace_id_of, traceparent_in
from outbox.bookkeeping.watermarks import Watermarks
from outbox.groups import counts
from outbox.groups.counts import Cause, Group, PlainCause
from outbox.groups.fingerprint import template_of
from outbox.letters.models import BurialKey, DeadLetter, order_of_letter

# -- Buries records that failed for good: a letter per record, step and revision, counted by cause -----------
LONGEST_ERROR = 10_000  # characters
LONGEST_TRACEBACK = 50_000
LONGEST_HEADERS = 100_000  # characters of all together
REPLAY_OF = "replay_of"  # the header of a record that was sent again from a letter
# What a letter says in words of its own; all else of it is bytes, numbers and names of Kafka's.
WORDS = ("error", "error_class", "traceback", "business_key", "correlation_id", "headers")
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


@dataclass(eq=False)
class Letter:
    """A failure to be buried: the record as received, the step that failed, a stable reason, a text.

    `template` is the text without the names that it says, where whoever wrote it knows them. `bury` gives it its `id`.
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
    headers: Sequence[Header] = field(default=())
    template: str = ""
    id: UUID | None = None
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
    for plain in (False, True):
        try:
            with transaction.atomic():
                return _bury(letters, group, now, plain)
        except Exception as error:
            if remedy_for(error) is not Remedy.DATA or connection.needs_rollback:
                raise  # where a statement was too large, its session is gone
            log.warning("letter_refused", letters=len(letters), plain=plain, error=str(error).strip())
    if len(letters) > 1:
        middle = len(letters) // 2
        return [*bury(letters[:middle], group, now), *bury(letters[middle:], group, now)]
    bare = _bare(letters[0])
    written = _bury([bare], group, now, plain=True)
    letters[0].id = bare.id
    return [letters[0]] if written else []


def _bury(letters: Sequence[Letter], group: str, now: datetime, plain: bool) -> Sequence[Letter]:
    """Write them; `plain` with ASCII alone, for a database that has not all characters."""
    rows = {letter.key: letter for letter in sorted(letters, key=lambda letter: letter.key)}
    # Asked before the keys are inserted: of two who bury at once, none has a smaller number and a higher id without need.
    above = DeadLetter.objects.filter(source__in={letter.source for letter in letters}).ahead_of(now)
    keys = [(*key, digest(keepable(letter.record.value))) for key, letter in rows.items()]
    unknown = {tuple(key) for key in BURIAL.run(keys, {"group": group})}
    fresh = [letter for key, letter in rows.items() if key in unknown]
    if not fresh:
        return []
    # Replays go by these ids, and the cut-off of a batch: they are in the order of the places, and no host's clock is in them.
    for letter, letter_id in zip(fresh, uuid7s_from(now, above), strict=False):
        letter.id = letter_id
    causes = (PlainCause(*letter.cause) if plain else letter.cause for letter in fresh)
    groups = counts.groups_for(causes, now)
    written = [_letter(letter, groups[letter.cause].pk, group, now) for letter in fresh]
    DeadLetter.objects.bulk_create(map(_in_plain_words, written) if plain else written)
    counts.count_arrivals(_arrived(fresh, groups), now)
    ids = RowIds(
        written, letter_id="id", source="source", step="step", reason="reason", group="group_id", business_key="business_key",
        order_id=order_of_letter, correlation_id="correlation_id",
    )  # fmt: skip
    log_committed("letters_opened", "warning", letters=len(written), ids=ids)
    for letter in fresh:
        metrics.BURIED.labels(letter.source, letter.reason).inc()
    return fresh


def _in_plain_words(letter: DeadLetter) -> DeadLetter:
    for name in WORDS:
        setattr(letter, name, in_ascii(getattr(letter, name)))
    letter.business_key, letter.correlation_id = storable(letter.business_key), letter.correlation_id[:100]
    return letter


def _bare(letter: Letter) -> Letter:
    """The little of a letter that every database takes: it must be written, or its record would be tried for ever.

    The record counts as an excerpt, which is replayed from its topic.
    """
    record, whole = letter.record, letter.record.value or b""
    value = whole
    if not isinstance(whole, Excerpt):
        value = Excerpt.of(whole)
        if len(whole) <= 2 * END_BYTES:
            value = Excerpt.from_ends(whole, value.size, value.sha256)
    place = Replayed(record.topic, record.partition, record.offset, record.timestamp, None, value)
    return replace(
        letter, record=place, error=letter.error[:1000], traceback="", business_key="", predecessor=letter.origin
    )


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
        error=storable(without_addresses(letter.error), LONGEST_ERROR),
        error_class=letter.error_class[:200],
        traceback=storable(without_addresses(letter.traceback[-LONGEST_TRACEBACK:]), LONGEST_TRACEBACK),
        consumer_group=group,
        topic=record.topic,
        topic_id=letter.topic_id,
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        revision=letter.revision,
        # The same from revision to revision, so that a search finds them all.
        business_key=storable(getattr(record, "business_key", "") or letter.business_key),
        correlation_id=_header(record, "correlation_id"),
        trace_id=trace_id_of(traceparent_in(record.headers)) or None,
        created_at=now,
        updated_at=now,
        **_content(record),
    )


def _content(record: Record) -> dict[str, object]:
    """Key, payload and headers, as far as one statement can hold them; what is cut is measured."""
    headers = header_rows(record.headers or ())
    left = [header for header, size in zip(headers, _sizes(headers), strict=True) if size <= LONGEST_HEADERS]
    key, value = record.key, keepable(record.value)
    content: dict[str, object] = {"key": key and key[:END_BYTES], "payload": value, "headers": left}
    if isinstance(value, Excerpt):
        content.update(payload_size=value.size, payload_sha256=value.sha256)
    elif len(left) < len(headers) or len(key or b"") > END_BYTES:
        content.update(payload_size=len(value or b""), payload_sha256="")
    return content


def _sizes(headers: Sequence[HeaderRow]) -> Iterator[int]:
    """The characters of the headers up to each one."""
    return accumulate(sum(len(part or "") for part in header) for header in headers)


def _header(record: Record, name: str) -> str:
    for key, value in record.headers or ():
        if key == name:
            return printable_value(value)[:100]
    return ""


# -- What the Kafka handlers of all flows share: how a record becomes a letter -------------------------------
class AlarmedWatermarks(Watermarks):
    """Watermarks that leave a dead letter where a partition stops, because records may be gone."""

    def __init__(self, source: str) -> None:
        self.source = source

    def stop(self, group: str, alarms: Mapping[TopicPartition, str], now: datetime) -> None:
        with transaction.atomic():
            super().stop(group, alarms, now)
            marks = self.load(group, sorted({topic for topic, _ in alarms}))
            letters = []
            for tp, alarm in alarms.items():
                mark = marks.get(tp, Mark("", 0))
                place = Replayed(*tp, mark.next_offset, -1, None, None)
                letters.append(Letter(self.source, STOPPED, "partition_stopped", alarm, place, mark.topic_id))
            bury(letters, group, now)


def known_before(letters: Sequence[Letter], new: Sequence[Letter]) -> list[Letter]:
    """The letters that `bury` did not write, because an earlier reading of their records did."""
    written = set(map(id, new))
    return [letter for letter in letters if id(letter) not in written]


Place = tuple[str, int]  # topic as the broker knows it, partition


@dataclass
class RecordOutcomes:
    """What became of the records of a batch; letters, groups and counters are written from it afterwards."""

    REPEATED: ClassVar[str]  # the outcome of a record that was known

    outcomes: Counter[tuple[Place, str]] = field(default_factory=Counter)
    letters: list[Letter] = field(default_factory=list)
    parked: int = 0  # letters that were not there before
    changed: dict[Hashable, list[Record]] = field(default_factory=dict)  # by key, of a replay

    def settle(self, record: Record, outcome: str) -> None:
        self.outcomes[(record.topic, record.partition), outcome] += 1

    def settle_letters(self, new: Sequence[Letter]) -> None:
        """Count letters that were there before as repeats: their records are read once more."""
        self.parked = len(new)
        for letter in known_before(self.letters, new):
            self.outcomes[(letter.record.topic, letter.record.partition), "parked"] -= 1
            self.settle(letter.record, self.REPEATED)


class LetterHandler(Handler):
    """Base of a flow's Kafka handler: what it cannot handle becomes a letter, and missing partitions are made."""

    source: str  # the flow its letters belong to

    def letter(
        self, batch: RecordBatch, record: Record, step: str, reason: str, text: str, key: str = "", **more: Any
    ) -> Letter:
        """A letter about `record`, not buried yet; `key` is the order or reference it is about."""
        topic_id, key = batch.topic_ids.get(record.topic, ""), key or self.key_in(record)
        return Letter(
            self.source, step, reason, text, record, topic_id, batch.letter_revision, business_key=key, **more
        )

    def key_in(self, record: Record) -> str:
        """The order or reference in a record that may not have passed the gate: who looks for it finds its letter."""
        return ""

    def park(self, batch: RecordBatch, record: Record, error: BaseException, trace: str, now: datetime) -> None:
        """Bury the one record that the database refused although the gate let it through."""
        details = {"error_class": type(error).__name__, "traceback": trace}
        letter = self.letter(batch, record, "store", "database_refused", error_text(error), **details)
        new = bury([letter], topic_name(self.group), now)
        batch.tally = Tally(parked=len(new))
        self.buried(new, now)
        self.count_parked(batch, record, now, new=bool(new))

    def buried(self, letters: Sequence[Letter], now: datetime) -> None:
        """Write what else a flow says of new letters, in their transaction."""

    def count_parked(self, batch: RecordBatch, record: Record, now: datetime, *, new: bool) -> None:
        """Count a record that `park` has buried, where the flow accounts for each record.

        One that was a letter before is a repeat.
        """

    def repair(self) -> None:
        ensure_partitions()
