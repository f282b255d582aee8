"""Stage 1 of the flush: when a bucket is due, and how due buckets become frozen batches."""

from __future__ import annotations

import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from django.conf import settings
from django.db import transaction

from buffer.events.models import EMPTY, Batch, Bucket, BufferedEvent
from buffer.flush.batch_letters import Unfrozen, is_refusal, set_aside
from buffer.flush.freeze import Claimed, Frozen, LeasedBatch, cut, freeze, trace_cut
from buffer.streams import GROUP, Stream
from config.database.clock import database_now
from config.database.dialects.base import Row
from config.database.queries import through
from config.database.upsert import Rewrite, Upsert, timestamp_text, uuid_text, uuid_writer
from config.payload import as_json
from config.telemetry import metrics
from config.telemetry.logs import RowIds, log, log_committed
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import Watermark

# -- When a bucket is due ----------------------------------------------------------------------------------
RECHECK = timedelta(seconds=1)
STALE = timedelta(seconds=10)


@dataclass(frozen=True)
class DueDecision:
    """Either the rule that makes a bucket due, or when to look at it again."""

    reason: str = ""
    look_again: datetime | None = None


def decide(
    bucket: Bucket | Candidate, now: datetime, caught_up: Mapping[int, datetime | None], max_batch: int, pressed: bool
) -> DueDecision:
    """Decide about one candidate.

    A bucket is idle only if the consumer has read everything of its partition since: `caught_up[partition]` is the
    last time that was so. While the consumer is behind or down, only the cap makes a quiet bucket due.
    """
    if bucket.urged:
        return DueDecision(bucket.urged)
    if bucket.open_count >= max_batch:
        return DueDecision("size")
    if bucket.cap_at is not None and bucket.cap_at <= now:
        return DueDecision("cap")
    if pressed:
        return DueDecision("pressure")
    read_at = caught_up.get(bucket.source_partition) if bucket.source_partition is not None else None
    if read_at is not None and bucket.idle_at is not None and bucket.idle_at <= read_at:
        return DueDecision("idle")
    # While the consumer lives it reports every second; while it is down nobody needs to look that often.
    pause = RECHECK if read_at is not None and now - read_at < STALE else STALE
    later = max(now + pause, bucket.idle_at or now)
    return DueDecision(look_again=min(later, bucket.cap_at) if bucket.cap_at else later)


# -- Cutting batches ---------------------------------------------------------------------------------------
BUCKETS_A_ROUND = 400
FULL_BUCKETS_A_ROUND = 16
EVENTS_A_ROUND = 4000


class Candidate(NamedTuple):
    """A locked bucket: a tuple, because hydrating models takes a quarter of a flusher's time."""

    id: int
    stream: str
    location_id: str
    open_count: int
    sequence: int
    urged: str
    first_arrival: datetime | None
    idle_at: datetime | None
    cap_at: datetime | None
    source_partition: int | None


Choice = tuple[Candidate, DueDecision]
Cut = tuple[Candidate, DueDecision, list[Frozen]]


@dataclass
class Round:
    """What a claim did: batches leased to `token`, how many buckets it looked at, the orders it last tried to cut."""

    token: uuid.UUID
    batches: list[LeasedBatch] = field(default_factory=list)
    looked_at: int = 0
    tried: list[Claimed] = field(default_factory=list)
    cut: list[Frozen] = field(default_factory=list)  # by the transaction under way


def claim(stream: Stream, token: uuid.UUID | None = None) -> Round:
    """Cut batches from the buckets that are due, in one transaction, and lease them to `token` (None: a new one).

    Bucket rows and event rows are locked with SKIP LOCKED only, so this never waits for an ingester, and an
    ingester waits for it at most as long as this transaction lasts. That is why many buckets may share it
    (docs/adr/0003): one bucket a transaction would cap a flusher at a few hundred buckets a second.

    Where the database refuses what was cut, or the stream cannot sum it, buckets are cut one by one instead, and
    fewer and fewer orders at once: one that no batch can hold is set aside and stops no other.
    """
    round_ = Round(token or uuid.uuid4())
    try:
        _claim(stream, round_)
    except Exception as error:
        if not is_refusal(error):
            raise
        log.warning("batches_refused", stream=stream.name, error=str(error).strip())
        metrics.BISECTED.labels("flush").inc()
        for bucket in _due_buckets(stream):
            _claim_bucket(stream, round_, bucket)
    return round_


def _due_buckets(stream: Stream) -> list[int]:
    with transaction.atomic():
        return [bucket.id for bucket in _lock_candidates(stream.name, _horizon(stream, database_now()))]


def _claim_bucket(stream: Stream, round_: Round, bucket: int) -> None:
    """Cut what one bucket holds, as many orders at once as the database takes."""
    most = EVENTS_A_ROUND
    while True:
        try:
            taken = _claim(stream, round_, bucket, most)
        except Exception as error:
            if not is_refusal(error):
                raise
            if len(round_.tried) > 1:
                most = len(round_.tried) // 2
                continue
            if not round_.tried:
                raise
            if not set_aside(stream, bucket, round_.tried[0], error):
                return
            taken = 1
        if not taken:
            return
        most *= 2


def _claim(stream: Stream, round_: Round, bucket: int | None = None, most: int | None = None) -> int:
    """Cut the due buckets, or the oldest `most` orders of one, in a transaction; returns how many orders were taken."""
    round_.tried, round_.cut, began = [], [], time.time_ns()
    with transaction.atomic():
        now = database_now()
        chosen = _choose(stream, now, round_, bucket)
        leased, taken = _cut_batches(stream, chosen, now, round_, most) if chosen else ([], 0)
    round_.batches += leased
    for batch in round_.cut:
        links = (
            event.traceparent for event in batch.events if event.traceparent
        )  # read only where something is traced
        trace_cut(batch.headers, links, stream.name, len(batch.events), began)
    return taken


LOOK_AGAIN = Rewrite(Bucket, key="id", changes="due_at")


def _choose(stream: Stream, now: datetime, round_: Round, only: int | None) -> list[Choice]:
    """Lock candidates; keep those that are due and put off the others."""
    horizon = _horizon(stream, now)
    candidates = _lock_candidates(stream.name, horizon) if only is None else _locked(stream.name, horizon, 1, pk=only)
    caught_up = caught_up_of(stream)
    chosen: list[Choice] = []
    put_off: list[tuple[int, str]] = []
    later: list[Candidate] = []
    expected = 0
    for bucket in candidates:
        round_.looked_at += 1
        decision = decide(bucket, now, caught_up, stream.max_batch, pressed=horizon is None)
        if decision.look_again is not None:
            put_off.append((bucket.id, timestamp_text(decision.look_again)))
            later.append(bucket)
        elif not chosen or expected + bucket.open_count <= EVENTS_A_ROUND:
            chosen.append((bucket, decision))
            expected += bucket.open_count
    LOOK_AGAIN.run(put_off)
    if later:
        log_committed(
            "buckets_put_off", stream=stream.name, buckets=len(later), ids=RowIds(later, location_id="location_id")
        )
    return chosen


def _horizon(stream: Stream, now: datetime) -> datetime | None:
    """Up to when buckets are looked at: all that wait, above the high-water mark."""
    pressed = counters.totals(stream.name).get("open", 0) >= settings.BUFFER_HIGH_WATER
    return None if pressed else now


def _lock_candidates(stream: str, now: datetime | None) -> list[Candidate]:
    """Lock as many as fill a round of those due at `now`, or of all that wait: a few full buckets or many small ones.

    The rest is left to other flushers.
    """
    few = _locked(stream, now, FULL_BUCKETS_A_ROUND)
    if len(few) < FULL_BUCKETS_A_ROUND or sum(bucket.open_count for bucket in few) >= EVENTS_A_ROUND // 2:
        return few
    return _locked(stream, now, BUCKETS_A_ROUND)


def _locked(stream: str, now: datetime | None, most: int, **which: int) -> list[Candidate]:
    rows = Bucket.objects.of_stream(stream).due(now).filter(**which).lock_free()
    return [Candidate._make(row) for row in rows.values_list(*Candidate._fields)[:most]]


def caught_up_of(stream: Stream) -> dict[int, datetime | None]:
    """`{source partition: when everything in it was last known to be in the buffer}`."""
    rows = Watermark.objects.of_group(GROUP).of_topic(stream.topic).running()
    return dict(rows.values_list("partition", "caught_up_at"))


RELEASE = Rewrite(Bucket, key="id", changes=f"sequence {' '.join(EMPTY)}")


def _cut_batches(
    stream: Stream, chosen: Sequence[Choice], now: datetime, round_: Round, most: int | None
) -> tuple[list[LeasedBatch], int]:
    """Returns the batches that are leased at once, and how many orders were taken."""
    events = _open_events(stream, [bucket for bucket, _ in chosen], most)
    round_.tried = [event for waiting in events.values() for event in waiting]
    frozen: list[Cut] = []
    for bucket, decision in chosen:
        slices = enumerate(cut(stream, events.get(bucket.location_id, ())), start=bucket.sequence + 1)
        try:
            batches = [freeze(stream, bucket.location_id, n, part, now) for n, part in slices]
        except Exception as error:
            raise Unfrozen(f"{type(error).__name__}: {error}") from error
        frozen.append((bucket, decision, batches))
    round_.cut = [batch for _, _, batches in frozen for batch in batches]
    leased = _store_batches(stream, frozen, now, round_)
    _claim_events(round_.cut, now)
    recounted: list[tuple[str, str]] = []
    RELEASE.run([_after(bucket, batches, now, recounted) for bucket, _, batches in frozen])
    if recounted:
        ids = RowIds(recounted, location_id=0, left=1)
        log_committed("buckets_recounted", stream=stream.name, buckets=len(recounted), ids=ids)
    taken = sum(len(batch.events) for batch in round_.cut)
    counters.add({(stream.name, "flush", "open"): -taken}, now)
    return leased, taken


OPEN = "bufferedevent_open"  # the index of what waits


def _open_events(stream: Stream, buckets: Sequence[Candidate], most: int | None = None) -> dict[str, list[Claimed]]:
    """The events of each bucket, oldest first.

    Buckets that fit whole share one query. A bucket that does not is always chosen alone and reads its
    oldest events only, `most` of them.
    """
    most = most or EVENTS_A_ROUND
    locations = [bucket.location_id for bucket in buckets]
    rows = BufferedEvent.objects.pending().at(stream.name, locations).lock_free()
    if len(buckets) == 1 and buckets[0].open_count > most:
        rows = rows.oldest_first()[:most]
    with through(BufferedEvent, OPEN):
        events = list(rows.values_list(*Claimed._fields))
    grouped: defaultdict[str, list[Claimed]] = defaultdict(list)
    for event in sorted(map(Claimed._make, events)):
        grouped[event.location_id].append(event)
    return grouped


# bulk_create takes five times as long on PostgreSQL, most of it in this process.
STORE = Upsert(
    Batch,
    columns=(
        "batch_id location_id sequence reason partition_key event_count lease_token lease_until months "
        "content_hash headers event_ids payload"
    ),
    constants="stream status attempts error claimed_at",
    key="",
    update={},
)
NEW_BATCH = {"status": Batch.Status.CLAIMED.value, "attempts": 0, "error": ""}


def _store_batches(stream: Stream, frozen: Sequence[Cut], now: datetime, round_: Round) -> list[LeasedBatch]:
    """Write the batches; those are leased at once, and returned, whose location has no older one unsent."""
    locations = [bucket.location_id for bucket, _, batches in frozen if batches]
    unsent = Batch.objects.claimed().of_streams([stream.name]).at(locations)
    blocked = set(unsent.values_list("location_id", flat=True))
    until = timestamp_text(now + timedelta(seconds=settings.BUFFER_LEASE_SECONDS))
    leased, unleased = (uuid_text(round_.token), until), (None, None)
    rows: list[Row] = []
    ours: list[LeasedBatch] = []
    reasons: Counter[str] = Counter()
    text = uuid_writer()
    for bucket, decision, batches in frozen:
        location = bucket.location_id
        free = location not in blocked
        for batch in batches:
            events = [event.id for event in batch.events]
            frame = (batch.sequence, decision.reason, batch.months[-1], len(events))
            content = (
                as_json(batch.months),
                batch.content_hash,
                as_json(batch.headers),
                as_json(events),
                batch.payload,
            )
            rows.append((text(batch.batch_id), location, *frame, *(leased if free else unleased), *content))
            if free:
                sent = (batch.batch_id, stream.name, location, batch.payload, batch.headers, len(events))
                ours.append(LeasedBatch(*sent))
        reasons[decision.reason] += len(batches)
    STORE.run(rows, {**NEW_BATCH, "stream": stream.name, "claimed_at": now})
    if round_.cut:
        orders = sum(len(batch.events) for batch in round_.cut)
        pairs = ((event.order_id, batch.batch_id) for batch in round_.cut for event in batch.events)
        ids = RowIds(round_.cut, batch_id="batch_id") | RowIds(pairs, orders, order_id=0, of_batch=1)
        about = {"stream": stream.name, "reasons": dict(reasons), "batches": len(round_.cut), "orders": orders}
        log_committed("batches_cut", **about, ids=ids)
    for reason, number in reasons.items():
        metrics.FLUSHED.labels(stream.name, reason).inc(number)
    return ours


CLAIM = Rewrite(
    BufferedEvent,
    key="id",
    changes="batch_id",
    constants="status updated_at",
    guard="old.status = 'pending'",
    prune="partition_key",
)


def _claim_events(batches: Sequence[Frozen], now: datetime) -> None:
    text = uuid_writer()
    rows = [(event.id, name) for batch in batches for name in [text(batch.batch_id)] for event in batch.events]
    months = sorted({month for batch in batches for month in batch.months})
    taken = CLAIM.run(rows, {"status": BufferedEvent.Status.CLAIMED.value, "updated_at": now}, months)
    if taken != len(rows):
        # Locked rows cannot change under us: this would be a bug, and the transaction must not commit it.
        raise RuntimeError(f"claimed {taken} of {len(rows)} locked events")


RETRY_EMPTY = timedelta(seconds=1)


def _after(bucket: Candidate, batches: Sequence[Frozen], now: datetime, recounted: list[tuple[str, str]]) -> Row:
    """The bucket's row after the cut; what is left over is due at once. One that said more than waits is recounted."""
    taken = sum(len(batch.events) for batch in batches)
    left = bucket.open_count - taken
    if left and not taken:
        left = BufferedEvent.objects.pending().at(bucket.stream, [bucket.location_id]).count()
        recounted.append((bucket.location_id, str(left)))
    sequence = bucket.sequence + len(batches)
    if left <= 0:
        return (bucket.id, sequence, *EMPTY.values())
    due = now if taken else now + RETRY_EMPTY
    times = [timestamp_text(at) if at else None for at in (bucket.first_arrival, bucket.cap_at)]
    return (bucket.id, sequence, left, "leftover", timestamp_text(due), *times)
