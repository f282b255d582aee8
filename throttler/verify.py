"""Conservation of the throttler: every record read went one way, and every message that waits is in the store.

All of it is asked of the read model, which is a second old: rows never change, so what it said stays provable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from django.conf import settings
from django.db.models import Count, F, Q, Sum

from config.database.isolation import consistent_snapshot
from config.flows import Check
from config.kafka import topic_name
from config.kafka.positions import TopicPartition
from config.kafka.reader import Reader, committed_offsets
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import Watermark
from outbox.bookkeeping.verify import (
    OFFENDERS,
    every_position_is_kept,
    every_record_has_an_outcome,
    no_partition_is_stopped,
)
from outbox.letters.models import BurialKey
from outbox.letters.verify import letters_counted
from throttler.engine.output_transaction import INPUT
from throttler.engine.partition import AGAIN, IN, OUT
from throttler.engine.row_writer import GROUP
from throttler.lanes.models import Lane, LanePartition
from throttler.lanes.read_model import FLOW
from throttler.overflow import store_of_settings
from throttler.overflow.store import LaneRange, OverflowStore

CHUNK = 1000


def checks(store: OverflowStore | None = None) -> Iterator[Check]:
    """All of them, in one snapshot; the store is asked for each lane that waits, a hundred at a time."""
    with consistent_snapshot():
        yield every_record_has_an_outcome(FLOW, IN)
        yield _what_was_buffered_left_or_waits()
        yield _lanes_fit_themselves()
        yield _the_store_has_what_waits(store or store_of_settings())
        yield _every_parked_record_has_its_letter()
        yield every_position_is_kept(FLOW, topic_name(GROUP), _place_of)
        yield no_partition_is_stopped(FLOW, topic_name(GROUP))
        yield _every_partition_has_its_row()
        yield letters_counted([FLOW])


def kafka_checks() -> Iterator[Check]:
    """The reported positions against those that the group has committed; raises KafkaError."""
    yield _positions_are_committed(topic_name(GROUP), topic_name(INPUT))


def _place_of(scope: str) -> TopicPartition | None:
    return (topic_name(INPUT), int(scope)) if scope.isdigit() else None


def _what_was_buffered_left_or_waits() -> Check:
    """In each partition; totals and lanes were written in one transaction."""
    rows = Lane.objects.filter(backlog__gt=0).order_by().values_list("partition").annotate(total=Sum("backlog"))
    waiting = {str(partition): int(total) for partition, total in rows}
    totals = counters.by_scope(FLOW)
    came = went = 0
    offenders = []
    for scope in sorted(totals.keys() | waiting.keys()):
        counts = totals.get(scope, {})
        accounted = sum(counts.get(name, 0) for name in OUT) + waiting.get(scope, 0)
        came += counts.get("buffered", 0)
        went += accounted
        if counts.get("buffered", 0) != accounted:
            offenders.append({"partition": scope, "waiting": waiting.get(scope, 0), **counts})
    return Check(f"{FLOW}: buffered = {' + '.join(OUT)} + waiting", came, went, offenders[:OFFENDERS])


def _lanes_fit_themselves() -> Check:
    """What waits lies between drained and seen, and has a day, which is not behind the newest."""
    waits = Q(backlog__gt=0, backlog__lte=F("seen") - F("drained"), day__isnull=False)
    waits &= Q(newest=None) | Q(newest__gte=F("day"))
    waits &= Q(drained__gte=F("first") - 1, waits__gte=0, waits__lte=F("backlog"))
    wrong = Lane.objects.exclude(waits).exclude(backlog=0, waits=0, drained__lte=F("seen")).order_by("pk")
    lanes = wrong.values("customer_id", "partition", "backlog", "first", "drained", "seen", "day")
    return Check(f"{FLOW}: the numbers of every lane fit each other", rows=list(lanes[:OFFENDERS]))


def _every_partition_has_its_row() -> Check:
    """Whoever counts records of a partition or writes its lanes moves its row, which no lane is ahead of."""
    partitions = {row.number: row for row in LanePartition.objects.all()}
    rows: list[dict[str, object]] = [
        {"partition": int(scope), "why": "records are counted, and its row is gone"}
        for scope, counts in sorted(counters.by_scope(FLOW).items())
        if scope.isdigit() and counts.get("read", 0) > 0 and int(scope) not in partitions
    ]
    for number, topic_id in Lane.objects.order_by().values_list("partition", "topic_id").distinct():
        row = partitions.get(number)
        if row is None:
            rows.append({"partition": number, "why": "it has lanes, and its row is gone"})
            continue
        # A lane without a backlog may be of before a reset that went back: nobody reads it again.
        waiting = Lane.objects.filter(partition=number, topic_id=topic_id, backlog__gt=0)
        ahead = waiting.filter(seen__gte=row.decided).order_by("pk")
        if topic_id == row.topic_id:
            lanes = ahead.values_list("customer_id", "seen")[:OFFENDERS]
            rows += [{"partition": number, "customer": customer, "seen": seen, "decided": row.decided}
                     for customer, seen in lanes]  # fmt: skip
    return Check(f"{FLOW}: every partition has its row, and no lane is ahead of it", rows=rows[:OFFENDERS])


def _the_store_has_what_waits(store: OverflowStore) -> Check:
    """Distinct offsets in (drained, seen] from the lane's day on, in every lane: exact where all rows are stored.

    Rows on their way to the store may be there already. While an owner reads again what it had decided before it
    began, nobody knows how many are on their way.
    """
    rereading = set(LanePartition.objects.filter(read__lt=F("decided")).values_list("number", flat=True))
    expected = actual = 0
    offenders: list[dict[str, object]] = []
    for page in _waiting_lanes():
        for lane, number in zip(page, store.counts(list(map(_range_of, page))), strict=True):
            least = 0 if lane.partition in rereading else lane.backlog - lane.waits
            fits = least <= number <= lane.backlog
            expected += lane.backlog
            actual += lane.backlog if fits else number
            if not fits and len(offenders) < OFFENDERS:
                which = {"customer": lane.customer_id, "partition": lane.partition}
                offenders.append({**which, "waiting": lane.backlog, "on their way": lane.waits, "stored": number})
    return Check(f"{FLOW}: every message that waits is in the store", expected, actual, offenders)


def _waiting_lanes() -> Iterator[list[Lane]]:
    """In pages: there may be a hundred thousand."""
    rows = Lane.objects.filter(backlog__gt=0).order_by("pk")
    page = list(rows[:CHUNK])
    while page:
        yield page
        page = list(rows.filter(pk__gt=page[-1].pk)[:CHUNK])


def _range_of(lane: Lane) -> LaneRange:
    # One without a day offends above; its rows are looked for as far back as any are kept.
    day = lane.day or lane.updated_at.date() - timedelta(days=settings.THROTTLER_BUFFER_DAYS)
    place = lane.partition, lane.customer_id, lane.topic_id
    return LaneRange(*place, lane.drained, lane.seen, day, lane.backlog, lane.newest)


def _every_parked_record_has_its_letter() -> Check:
    """In each partition as many letters as records parked, less those whose offset is not committed yet.

    A letter may be written before its record is counted, so letters count below the first undecided offset only. What
    was read again after a reset may have had its letter before.
    """
    partitions = {row.number: row for row in LanePartition.objects.all()}
    totals = counters.by_scope(FLOW)
    came = went = 0
    offenders = []
    for number, row in sorted(partitions.items()):
        counts = totals.get(str(number), {})
        parked, again = counts.get("parked", 0), counts.get(AGAIN, 0)
        letters = _letters_below(row)
        fits = parked - again - max(0, row.decided - row.position) <= letters <= parked
        came += parked
        went += parked if fits else letters
        if not fits:
            offenders.append({"partition": number, "parked": parked, "letters": letters})
    return Check(f"{FLOW}: every parked record has its letter", came, went, offenders[:OFFENDERS])


def _letters_below(row: LanePartition) -> int:
    """Burial keys are kept for ever; those of a topic that was created again all count."""
    keys = BurialKey.objects.filter(
        Q(offset__lt=row.decided) | ~Q(topic_id=row.topic_id),
        group=topic_name(GROUP), topic=topic_name(INPUT), partition=row.number, step__in=["decode", "send"], revision=0,
    )  # fmt: skip
    return int(keys.aggregate(number=Count("pk"))["number"])


def _positions_are_committed(group: str, topic: str) -> Check:
    """It follows a transaction: no position lies beyond what the group has committed, nor in another topic."""
    marks = list(Watermark.objects.filter(group=group, topic=topic).order_by("partition"))  # first: both move on
    if not marks:
        return Check(f"{FLOW}: every mirrored position is committed")
    committed = {place: mark.next_offset for place, mark in committed_offsets(group, topic).items()}
    with Reader(topic) as reader:
        topic_id = reader.topic_id
    offenders = list(_misplaced(marks, committed, topic_id))
    return Check(f"{FLOW}: every mirrored position is committed", rows=offenders[:OFFENDERS])


def _misplaced(
    marks: Sequence[Watermark], committed: Mapping[TopicPartition, int], topic_id: str
) -> Iterator[dict[str, object]]:
    for mark in marks:
        known = committed.get((mark.topic, mark.partition))
        offender = {"partition": mark.partition, "mirrored": mark.next_offset, "committed": known}
        if mark.topic_id and mark.topic_id != topic_id:
            yield {**offender, "why": "the topic was created again"}
        elif mark.next_offset > (known or 0):
            yield {**offender, "why": "mirrored, but not committed: the group or the log was changed by hand"}
