"""The ledger's handler: record first, then adjust the stocks by exactly what was recorded; names follow CDC."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from datetime import datetime
from functools import partial

from django.conf import settings
from django.db import transaction

from buffer.events.arrivals import NEWER, Position
from buffer.ledger.batch import Applied, Key, MovementClassifier, Prepared, Tracked, Verdict
from buffer.ledger.models import InventoryItem, InventoryLocation, InventoryStock
from buffer.ledger.statements import NAME, Group, Row, adjust_stocks, insert_movements, read_known, read_stocks
from buffer.ledger.topics import Merchant, Movements, Variant, reference_in, sources
from config.database.dialects.base import Row as Values
from config.database.upsert import Upsert, new
from config.gate import InvalidRecord
from config.kafka import Record, RecordBatch, Tally, topic_name
from config.kafka.consumer.writer import Replayable
from config.payload import short_hash
from config.telemetry import metrics
from config.telemetry.logs import RowIds, log_committed
from outbox.bookkeeping import counters
from outbox.letters.burial import LetterHandler, Place, bury

GROUP = "buffer-track"
LONGEST_NAME = 40  # of a topic in the scope of a counter
Fresh = dict[Group, dict[Key, Row]]  # what was inserted


class Track(LetterHandler, Replayable):
    """The consumer's handler for all stock topics."""

    name = source = NAME
    group = GROUP

    def __init__(self) -> None:
        self.topics = list(settings.MOVEMENTS)
        self._stocks: set[str] = set()  # seen in the database since the last beat

    # -- on the polling thread ------------------------------------------------------------------------

    def prepare(self, batch: RecordBatch) -> Prepared:
        """Decode, turn into effects, sum per key, sort and pack."""
        return self.decode(batch).sort()

    def decode(self, batch: RecordBatch) -> Prepared:
        """What `prepare` finds, for those that write nothing."""
        prepared = Prepared()
        known = sources()
        for record in batch.records:
            source = known[record.topic]
            try:
                tombstone = record.value is None and source.tombstones
                value = source.gate.opened(record.value)
                effect = None if tombstone else source.effect(source.gate.judge(value))
            except InvalidRecord as refusal:
                self._refuse(prepared, batch, record, refusal)
                continue
            if effect is None:
                prepared.skipped[record.topic, record.partition] += 1
            elif isinstance(effect, Movements):
                prepared.add(Tracked(record, effect, short_hash(value)))
            else:
                prepared.changes.append((record, effect))
        prepared.read.update([(record.topic, record.partition) for record in batch.records])
        return prepared

    def _refuse(self, prepared: Prepared, batch: RecordBatch, record: Record, refusal: InvalidRecord) -> None:
        if refusal.reason == "equal_ends" and settings.LEDGER_EQUAL_ENDS == "skip":
            prepared.skipped[record.topic, record.partition] += 1
        else:
            prepared.letters.append(self.letter(batch, record, "decode", refusal.reason, str(refusal)))

    def key_in(self, record: Record) -> str:
        return reference_in(record.value, record.topic)

    def keys_of(self, batch: RecordBatch) -> Iterable[Hashable]:
        """The references of a prepared batch, and its stocks where their quantity decides."""
        prepared: Prepared = batch.prepared
        references = {tracked.movements.reference for tracked in prepared.tracked}
        stocks = prepared.stocks if settings.LEDGER_NEGATIVE_STOCK == "park" else ()
        return {*references, *stocks, *(change for _record, change in prepared.changes)}

    # -- on the writer's thread, inside its transaction ------------------------------------------------

    def write(self, batch: RecordBatch, now: datetime) -> None:
        applied = self.apply(batch, now)
        batch.tally = Tally(applied.number("applied"), applied.parked, 0, applied.changed)

    def apply(self, batch: RecordBatch, now: datetime) -> Applied:
        """Write a prepared batch; says what became of its records.

        1. The ledger: at once where no record can be refused, else classified record by record.
        2. The stocks, by exactly the sums of what was recorded.
        3. Locations and items; then letters and counters, whose rows workers share.
        """
        prepared: Prepared = batch.prepared
        applied = Applied(letters=list(prepared.letters), replayed=batch.from_log)
        for (topic, partition), number in prepared.skipped.items():
            applied.outcomes[(topic, partition), "skipped"] = number
        for letter in prepared.letters:
            applied.settle(letter.record, "parked")
        if prepared.tracked:
            self._track(batch, applied, now)
        self._follow(batch, applied, now)
        applied.settle_letters(bury(applied.letters, topic_name(self.group), now))
        self._count(batch, prepared.read, applied, now)
        self._log(applied, len(batch.records))
        return applied

    def _log(self, applied: Applied, records: int) -> None:
        """One line of the transaction: what became of its records, and what they are about that moved a stock."""
        outcomes: Counter[str] = Counter()
        for (_place, outcome), number in applied.outcomes.items():
            outcomes[outcome] += number
        moved = RowIds(
            [tracked.movements for tracked in applied.effective], reference_id="reference_id", order_id="order_id"
        )
        log_committed("effects_applied", records=records, outcomes=dict(outcomes), ids=moved)

    def _track(self, batch: RecordBatch, applied: Applied, now: datetime) -> None:
        prepared: Prepared = batch.prepared
        fresh, accepted = None, prepared.tracked
        if settings.LEDGER_NEGATIVE_STOCK == "allow" and not prepared.contradicts and self._exist(prepared.stocks):
            savepoint = transaction.savepoint()
            fresh = self._record(batch, now)
            if fresh is None:
                transaction.savepoint_rollback(savepoint)
        if fresh is None:
            fresh, accepted = self._record_classified(batch, applied, now)
        adjust_stocks(_sums(fresh), now)
        self._settle(accepted, fresh, applied)

    def _exist(self, stocks: set[str]) -> bool:
        """Whether all these stocks are known, or may be created: no record is parked for one."""
        if settings.LEDGER_UNKNOWN_STOCK == "create":
            return True
        unseen = stocks - self._stocks
        if unseen:
            self._stocks |= InventoryStock.objects.existing(unseen)
        return stocks <= self._stocks

    def _record(self, batch: RecordBatch, now: datetime) -> Fresh | None:
        """Record everything at once; returns what was not known before, None if a known row contradicts."""
        fresh: Fresh = {}
        for group, rows in batch.prepared.rows.items():
            topic, reference_type = group
            topic_id = batch.topic_ids.get(topic, "")
            packed = batch.prepared.packed[group]
            mine = fresh[group] = {key: rows[key] for key in insert_movements(group, packed, topic_id, now)}
            if len(mine) == len(rows):
                continue
            known = read_known(reference_type, [key for key in rows if key not in mine])
            for key, stored in known.items():
                if stored.contradiction(rows[key], topic, topic_id, replayed=batch.revision > 0):
                    return None
        for (_topic, reference_type), wholes in batch.prepared.wholes.items():
            if read_stocks(reference_type, wholes) != wholes:
                return None
        return fresh

    def _record_classified(self, batch: RecordBatch, applied: Applied, now: datetime) -> tuple[Fresh, list[Tracked]]:
        """Classify each record under the locks of its stocks; record those that apply, bury the others."""
        while True:
            classifier = self._classifier(batch, InventoryStock.objects.locked(batch.prepared.stocks))
            verdicts = [(tracked, classifier.verdict(tracked)) for tracked in batch.prepared.tracked]
            savepoint = transaction.savepoint()
            inserted = sum(
                len(insert_movements(group, sorted(rows.values()), batch.topic_ids.get(group[0], ""), now))
                for group, rows in sorted(classifier.wanted.items())
            )
            if inserted == sum(map(len, classifier.wanted.values())):
                break
            # Another worker recorded one of these keys since they were read; now it can be seen.
            transaction.savepoint_rollback(savepoint)
        for tracked, verdict in verdicts:
            if verdict.is_refusal:
                record = tracked.record
                about = {"key": tracked.movements.reference_id, "template": verdict.template(record.topic)}
                refusal = (verdict.outcome, verdict.text(record.topic))
                applied.letters.append(self.letter(batch, record, "effect", *refusal, **about))
                applied.settle(tracked.record, "parked")
        return classifier.wanted, [tracked for tracked, verdict in verdicts if not verdict.is_refusal]

    def foresee(self, batch: RecordBatch) -> dict[int, Verdict]:
        """What each record of a prepared batch would be now, by its identity; nothing is locked or written."""
        classifier = self._classifier(batch, InventoryStock.objects.quantities(batch.prepared.stocks))
        return {id(tracked.record): classifier.verdict(tracked) for tracked in batch.prepared.tracked}

    def _classifier(self, batch: RecordBatch, quantities: dict[str, int]) -> MovementClassifier:
        prepared: Prepared = batch.prepared
        known = {group: read_known(group[1], rows) for group, rows in prepared.rows.items()}
        moved = {group: read_stocks(group[1], wholes) for group, wholes in prepared.wholes.items()}
        create, allow = settings.LEDGER_UNKNOWN_STOCK == "create", settings.LEDGER_NEGATIVE_STOCK == "allow"
        return MovementClassifier(known, quantities, create, allow, batch.revision > 0, batch.topic_ids, moved)

    def _settle(self, accepted: Iterable[Tracked], fresh: Fresh, applied: Applied) -> None:
        """Give each record its outcome; a key belongs to the first record that named it."""
        nothing: dict[Key, Row] = {}
        for tracked in accepted:
            record, movements, _payload_hash = tracked
            left = fresh.get((record.topic, movements.reference_type), nothing)
            added = 0
            for stock in movements.deltas:
                if left.pop((movements.reference_id, stock), None) is not None:
                    added += 1
            applied.settle(record, "applied" if added else "duplicate")
            if added:
                applied.effective.append(tracked)
                applied.movements[record.topic, record.partition] += added
            if added and applied.replayed:  # what the outcome of later records may depend on
                applied.change(movements.reference, record)
                for stock in movements.deltas if settings.LEDGER_NEGATIVE_STOCK == "park" else ():
                    applied.change(stock, record)

    def _follow(self, batch: RecordBatch, applied: Applied, now: datetime) -> None:
        changes = batch.prepared.changes
        changed = {id(record) for record in mirror(changes, batch.topic_ids, now)} if changes else set()
        for record, change in changes:
            applied.settle(record, "applied" if id(record) in changed else "duplicate")
            if id(record) in changed:
                applied.change(change, record)

    def _count(self, batch: RecordBatch, read: Mapping[Place, int], applied: Applied, now: datetime) -> None:
        counts: Counter[tuple[str, str, str]] = Counter()
        came, rows = ("replayed", "restored") if batch.revision else ("read", "movements")
        for (place, outcome), number in applied.outcomes.items():
            counts[NAME, scope_of(place), outcome] += number
        for place, number in read.items():
            counts[NAME, scope_of(place), came] += number
        for place, number in applied.movements.items():
            counts[NAME, scope_of(place), rows] += number
        counters.add(counts, now)
        transaction.on_commit(partial(_measure, applied.outcomes))

    def count_parked(self, batch: RecordBatch, record: Record, now: datetime, *, new: bool) -> None:
        applied = Applied()
        applied.settle(record, "parked" if new else "duplicate")
        self._count(batch, {(record.topic, record.partition): 1}, applied, now)

    def pressure(self) -> bool:
        """Never: nothing waits here. Each second the stocks that were seen are forgotten."""
        self._stocks.clear()
        return False


def _sums(fresh: Fresh) -> dict[str, int]:
    """What was recorded, per stock."""
    sums: dict[str, int] = {}
    for rows in fresh.values():
        for (_reference_id, stock_id), row in rows.items():
            sums[stock_id] = sums.get(stock_id, 0) + row[2]
    return sums


def scope_of(place: Place) -> str:
    """The counter's scope: the topic's contract name, cut to the column's length, and the partition."""
    topic, partition = place
    return f"{sources()[topic].name[:LONGEST_NAME]}/{partition}"


def _measure(outcomes: Counter[tuple[Place, str]]) -> None:
    for ((topic, _partition), outcome), number in outcomes.items():
        metrics.LEDGER_RECORDS.labels(sources()[topic].name, outcome).inc(number)


# -- Merchants and product variants ------------------------------------------------------------------------
DEFAULT = "default"
SOURCE = "active topic_id source_partition source_offset source_timestamp"
TIMES = "created_at updated_at"
FOLLOWED = new(f"{SOURCE} updated_at")
LOCATIONS = Upsert(
    InventoryLocation,
    columns=f"merchant_id {SOURCE}",
    constants=f"name is_default {TIMES}",
    key="merchant_id name",
    update=FOLLOWED,
    guard=NEWER,
    token="token",  # noqa: S106 (a column)
    returning="merchant_id",
)


def _items(update: dict[str, str]) -> Upsert:
    return Upsert(
        InventoryItem,
        columns=f"id merchant_id {SOURCE}",
        constants=TIMES,
        key="id",
        update=update,
        guard=NEWER,
        token="token",  # noqa: S106 (a column)
        returning="id",
    )


ITEMS = _items({"merchant_id": "new.merchant_id", **FOLLOWED})
ITEMS_OF_THE_SAME_MERCHANT = _items(FOLLOWED)


class Newest:
    """The newest change of each row in a batch: only that one is written."""

    def __init__(self, topic_ids: Mapping[str, str]) -> None:
        self.topic_ids = topic_ids
        self.changes: dict[str, tuple[Position, Record, Values]] = {}

    def add(self, key: str, record: Record, values: Values) -> None:
        topic_id = self.topic_ids.get(record.topic, "")
        at = Position(topic_id, record.partition, record.offset, record.timestamp)
        known = self.changes.get(key)
        if known is None or at.newer_than(known[0]):
            self.changes[key] = (at, record, (*values, *at))

    def last(self, key: str) -> str | None:
        """The merchant of a variant, as far as this batch has named it."""
        return self.changes[key][2][1] if key in self.changes else None

    def rows(self) -> list[Values]:
        return [values for _key, (_at, _record, values) in sorted(self.changes.items())]

    def records(self, keys: Iterable[str]) -> list[Record]:
        return [self.changes[key][1] for key in keys]


def ensure_default_location(merchants: Newest, now: datetime) -> list[Record]:
    """One default location per merchant, in bulk and self-idempotent; returns the records that changed one."""
    constants = {"name": DEFAULT, "is_default": True, "created_at": now, "updated_at": now}
    return merchants.records(key for (key,) in LOCATIONS.run(merchants.rows(), constants))


def ensure_inventory_item(variants: Newest, now: datetime) -> list[Record]:
    """One item per product variant, in bulk and self-idempotent; returns the records that changed one."""
    constants = {"created_at": now, "updated_at": now}
    rows = variants.rows()
    changed = ITEMS.run([row for row in rows if row[1] is not None], constants)
    unnamed = [(key, "", *rest) for key, merchant_id, *rest in rows if merchant_id is None]
    return variants.records(key for (key,) in [*changed, *ITEMS_OF_THE_SAME_MERCHANT.run(unnamed, constants)])


def mirror(
    changes: Iterable[tuple[Record, Merchant | Variant]], topic_ids: Mapping[str, str], now: datetime
) -> list[Record]:
    """Follow all changes of a batch; returns the records that really changed a row."""
    merchants, variants = Newest(topic_ids), Newest(topic_ids)
    for record, change in changes:
        # 1 and 0: every database unpacks these to its own boolean.
        if isinstance(change, Merchant):
            merchants.add(change.merchant_id, record, (change.merchant_id, int(change.active)))
        else:
            merchant_id = variants.last(change.item_id) if change.merchant_id is None else change.merchant_id
            variants.add(change.item_id, record, (change.item_id, merchant_id, int(change.active)))
    return [*ensure_default_location(merchants, now), *ensure_inventory_item(variants, now)]
