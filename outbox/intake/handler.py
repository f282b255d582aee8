"""The consumer's handler of `messages-in`: each promise becomes one message of the outbox, once by key and by position."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

from django.conf import settings
from django.db import transaction

from config.database.retry import Stale
from config.database.upsert import Rewrite, Upsert, uuid_writer
from config.fields import uuid7, uuid7_after
from config.gate import InvalidRecord
from config.kafka import Mark, Record, RecordBatch, Tally, topic_name
from config.kafka.consumer.writer import Replayable
from config.kafka.positions import TopicPartition
from config.telemetry import metrics, tracing
from config.telemetry.logs import log_committed
from outbox.bookkeeping import counters
from outbox.bookkeeping.watermarks import Watermarks
from outbox.channels.handlers import ids_of
from outbox.intake import reached, refusals
from outbox.intake.envelope import Prepared, Promise, StoredMessage, Taken, difference, header_of, read, stated
from outbox.letters.burial import Letter, LetterHandler, Place, bury
from outbox.messages import notify
from outbox.messages.models import IdempotencyKey, OutboxMessage
from outbox.messages.publish import SCOPE, expiry_of

NAME = "messages-in"  # of this flow, in counters and letters
GROUP = "outbox-intake"
LONGEST_NAME = 40  # of a topic in the scope of a counter
SLACK = timedelta(hours=1)  # between the clocks of the broker and the database
EXPIRED = "nobody wants it any more since {:%F %T} UTC"

KEYS = Upsert(
    IdempotencyKey,
    columns="key payload_hash message_id",
    constants="scope answer created_at",
    key="scope key",
    update={},
    token="token",  # noqa: S106 (a column)
    returning="key",
)
RENAME = Rewrite(IdempotencyKey, key="key", changes="message_id", fixed="scope")


class Intake(LetterHandler, Replayable):
    """The consumer's handler for all topics of MESSAGES_IN."""

    name = source = NAME
    group = GROUP

    def __init__(self) -> None:
        self.topics = list(settings.MESSAGES_IN)
        # Below these offsets a database that was restored may have sent what it does not remember.
        self._forgotten: dict[TopicPartition, Mark] = {}

    # -- on the polling thread ------------------------------------------------------------------------
    def prepare(self, batch: RecordBatch) -> Prepared:
        """Decode and check; what nobody can send becomes a letter."""
        prepared = Prepared()
        now = datetime.fromtimestamp(time.time(), UTC)
        outside = _outside(batch, now) if batch.from_log else ()
        for record in batch.records:
            place = record.topic, record.partition
            if id(record) in outside:  # nobody knows any more whether it was sent
                prepared.outside[place] += 1
                continue
            prepared.read[place] += 1
            try:
                promise = read(record, contract_name(record.topic))
                _refuse_late(promise, now, again=_returned(batch))
            except InvalidRecord as refusal:
                prepared.letters.append(self.letter(batch, record, "decode", refusal.reason, str(refusal)))
            else:
                prepared.promises.append(promise)
        return prepared

    def key_in(self, record: Record) -> str:
        return stated(record, "aggregate")

    def keys_of(self, batch: RecordBatch) -> Iterable[Hashable]:
        return {promise.key for promise in batch.prepared.promises}

    # -- on the writer's thread, inside its transaction ------------------------------------------------
    def write(self, batch: RecordBatch, now: datetime) -> None:
        taken = self.apply(batch, now)
        outside = batch.prepared.outside.total()
        batch.tally = Tally(len(taken.stored), taken.parked, outside, taken.changed)

    def apply(self, batch: RecordBatch, now: datetime) -> Taken:
        """Store a prepared batch; says what became of its records.

        1. The keys, in sorted order; what is inserted is new, and becomes a message.
        2. What was known is compared: a repeat, or a letter.
        3. Letters, what producers are told of them, and counters, whose rows workers share.
        """
        prepared: Prepared = batch.prepared
        taken = Taken(letters=list(prepared.letters))
        self.store(batch, self._unread(batch, taken), taken, now)
        for letter in taken.letters:
            taken.settle(letter.record, "parked")
        new = bury(taken.letters, topic_name(self.group), now)
        taken.settle_letters(new)
        self.buried(new, now)
        self._count(batch, prepared.read, taken.outcomes, now)
        return taken

    def store(self, batch: RecordBatch, promises: Sequence[Promise], taken: Taken, now: datetime) -> None:
        """Steps 1 and 2: what each promise became is in `taken`, a letter not buried yet."""
        firsts = {promise.key: promise for promise in reversed(promises)}
        ids = {promise.key: uuid7() for promise in promises if firsts[promise.key] is promise}
        inserted = self._insert(firsts, ids, batch, now)
        self._compare(batch, promises, firsts, {key: ids[key] for key in inserted}, taken)

    def _unread(self, batch: RecordBatch, taken: Taken) -> Sequence[Promise]:
        """The promises at positions that were not read before: their keys may be gone, the watermark is not."""
        promises: Sequence[Promise] = batch.prepared.promises
        if batch.revision or not promises:
            return promises
        marks = Watermarks().load(topic_name(self.group), sorted({promise.record.topic for promise in promises}))
        fresh = []
        for promise in promises:
            record = promise.record
            mark = marks.get((record.topic, record.partition), Mark("", 0))
            if mark.topic_id == batch.topic_ids.get(record.topic, "") and record.offset < mark.next_offset:
                taken.settle(record, "repeated")
            else:
                fresh.append(promise)
        return fresh

    def _insert(
        self, firsts: Mapping[str, Promise], ids: dict[str, UUID], batch: RecordBatch, now: datetime
    ) -> list[str]:
        """Insert keys that are not known, and their messages in the order of the records; returns these keys.

        `ids` changes where another host has written higher ones.
        """
        text = uuid_writer()
        rows = [(key, promise.digest, text(ids[key])) for key, promise in sorted(firsts.items())]
        inserted = {row[0] for row in KEYS.run(rows, {"scope": SCOPE, "answer": "", "created_at": now})}
        ids.update(_raised(firsts, {key: ids[key] for key in ids if key in inserted}))
        messages = [self._message(firsts[key], ids[key], batch, now) for key in ids if key in inserted]
        OutboxMessage.objects.bulk_create(messages)
        if messages:
            transaction.on_commit(notify.notify_relays, robust=True)
            log_committed("messages_published", messages=len(messages), ids=ids_of(messages))
        return [key for key in ids if key in inserted]

    def _message(self, promise: Promise, message_id: UUID, batch: RecordBatch, now: datetime) -> OutboxMessage:
        record = promise.record
        content = {"channel": promise.channel, "event_type": promise.event_type, "aggregate": promise.aggregate}
        trace = {"traceparent": tracing.traceparent_in([("traceparent", header_of(record, "traceparent").encode())])}
        trace["correlation_id"] = header_of(record, "correlation_id")[:100]
        times = {"created_at": now, "available_at": now, "expires_at": _expiry(promise, batch, now)}
        row = OutboxMessage(id=message_id, payload=promise.text, **content, **trace, **times)
        row.times_revived = 0 if batch.from_log else batch.revision  # that is how often it came back
        if not batch.revision and self._is_forgotten(record, batch.topic_ids):
            row.state, row.times_uncertain = OutboxMessage.State.UNCERTAIN, 1
        return row

    def _is_forgotten(self, record: Record, topic_ids: Mapping[str, str]) -> bool:
        forgotten = self._forgotten.get((record.topic, record.partition), Mark("", 0))
        return topic_ids.get(record.topic, "") == forgotten.topic_id and record.offset < forgotten.next_offset

    def _compare(
        self,
        batch: RecordBatch,
        promises: Sequence[Promise],
        firsts: Mapping[str, Promise],
        new: Mapping[str, UUID],
        taken: Taken,
    ) -> None:
        """Give each record its outcome; a key belongs to the first record that named it."""
        originals = self._known({promise.key for promise in promises} - new.keys())
        originals |= {key: (message_id, as_stored(firsts[key])) for key, message_id in new.items()}
        for promise in promises:
            record, key = promise.record, promise.key
            if key not in originals:
                raise Stale("a key was deleted since it was found")
            message_id, stored = originals[key]
            if key in new and promise is firsts[key]:
                taken.settle(record, "stored")
                taken.stored[id(record)] = new[key]
                if batch.from_log:
                    taken.changed.setdefault(key, []).append(record)
            elif why := difference(promise, stored):
                taken.letters.append(self.letter(batch, promise.record, "store", "key_conflict", why))
            else:
                taken.settle(record, "repeated")
                taken.repeats[id(record)] = message_id

    @staticmethod
    def _known(keys: Iterable[str]) -> dict[str, tuple[UUID | None, StoredMessage | str]]:
        """The message of each key that was used before, or its digest."""
        used = IdempotencyKey.objects.filter(scope=SCOPE, key__any=frozenset(keys))
        found = list(used.values_list("key", "message_id", "payload_hash")) if keys else []
        rows = OutboxMessage.objects.among([pk for _, pk, _ in found if pk])
        columns = ("channel", "event_type", "aggregate", "payload")
        messages = {pk: StoredMessage(*content) for pk, *content in rows.values_list("id", *columns)}
        return {key: (pk, messages.get(pk, digest) if pk else digest) for key, pk, digest in found}

    def foresee(self, batch: RecordBatch) -> dict[int, str | None]:
        """By the identity of each promised record of a batch: None if its key is new, else why it is no repeat."""
        promises: Sequence[Promise] = batch.prepared.promises
        known = self._known({promise.key for promise in promises})
        return {
            id(promise.record): difference(promise, known[promise.key][1]) if promise.key in known else None
            for promise in promises
        }

    def _count(
        self, batch: RecordBatch, read: Mapping[Place, int], outcomes: Counter[tuple[Place, str]], now: datetime
    ) -> None:
        came = "replayed" if batch.revision else "read"
        counts: Counter[tuple[str, str, str]] = Counter()
        for (place, outcome), number in outcomes.items():
            counts[NAME, scope_of(place), outcome] += number
        for place, number in read.items():
            counts[NAME, scope_of(place), came] += number
        counters.add(counts, now)
        transaction.on_commit(partial(_measure, outcomes))

    def buried(self, letters: Sequence[Letter], now: datetime) -> None:
        refusals.tell(letters, now)

    def count_parked(self, batch: RecordBatch, record: Record, now: datetime, *, new: bool) -> None:
        place = record.topic, record.partition
        self._count(batch, {place: 1}, Counter({(place, "parked" if new else "repeated"): 1}), now)

    # -- around it --------------------------------------------------------------------------------------
    def regain(self, topic_ids: Mapping[str, str], gaps: Mapping[TopicPartition, int]) -> None:
        """A database that was restored: what it reads again may have been sent, and is marked as uncertain."""
        self._forgotten |= {place: Mark(topic_ids.get(place[0], ""), end) for place, end in gaps.items()}


def _outside(batch: RecordBatch, now: datetime) -> set[int]:
    """The identities of replayed records whose keys may be gone: by their own times, or by when they were read.

    A time to come says nothing of when the record was written.
    """
    kept = now - timedelta(days=settings.OUTBOX_IDEMPOTENCY_DAYS)
    oldest, latest = ((moment + SLACK).timestamp() * 1000 for moment in (kept, now))
    read = reached.read_by(kept, batch.topic_ids)
    return {
        id(record)
        for record in batch.records
        if not oldest <= record.timestamp <= latest or record.offset < read.get((record.topic, record.partition), 0)
    }


def _raised(firsts: Mapping[str, Promise], ids: Mapping[str, UUID]) -> dict[str, UUID]:
    """New ids, by key, of the messages that would stand before an earlier one of their aggregate.

    A host whose clock is ahead has written that one. Asked when the keys are inserted: whoever had read the same
    records has then committed.
    """
    if not ids:
        return {}
    newest = OutboxMessage.objects.newest_of((firsts[key].aggregate for key in ids), min(ids.values()))
    raised: dict[str, UUID] = {}
    for key in ids:
        if previous := newest.get(aggregate := firsts[key].aggregate):
            raised[key] = newest[aggregate] = uuid7_after(previous)
    text = uuid_writer()
    RENAME.run([(key, text(message_id)) for key, message_id in sorted(raised.items())], {"scope": SCOPE})
    return raised


def _returned(batch: RecordBatch) -> bool:
    """Whether its records came back from letters."""
    return bool(batch.revision) and not batch.from_log


def _refuse_late(promise: Promise, now: datetime, *, again: bool) -> None:
    """What came back from a letter and is too late would only be the next letter."""
    if again and promise.expires_at and promise.expires_at <= now:
        raise InvalidRecord("expired", EXPIRED.format(promise.expires_at))


def _expiry(promise: Promise, batch: RecordBatch, now: datetime) -> datetime:
    """OUTBOX_EXPIRES_SECONDS after the record was written, or sooner if it says so; a replay counts from now."""
    written = promise.record.timestamp / 1000
    since = now
    if not batch.revision and 0 < written < now.timestamp():
        since = datetime.fromtimestamp(written, UTC)
    latest = expiry_of(since)
    return min(promise.expires_at, latest) if promise.expires_at else latest


def as_stored(promise: Promise) -> StoredMessage:
    return StoredMessage(promise.channel, promise.event_type, promise.aggregate, promise.text)


def contract_name(topic: str) -> str:
    """A topic without the prefix."""
    return topic.removeprefix(settings.KAFKA_TOPIC_PREFIX)


def scope_of(place: Place) -> str:
    """The counter's scope: the topic's contract name, cut to the column's length, and the partition."""
    topic, partition = place
    return f"{contract_name(topic)[:LONGEST_NAME]}/{partition}"


def _measure(outcomes: Counter[tuple[Place, str]]) -> None:
    for ((topic, _partition), outcome), number in outcomes.items():
        metrics.INTAKE_RECORDS.labels(contract_name(topic), outcome).inc(number)
