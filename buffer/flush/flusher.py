"""The flusher: claim what is due, publish what is claimed, mark it sent; nothing is cut before a restore has caught up."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, transaction

from buffer.events.models import Batch, Bucket
from buffer.flush.batch_letters import PUBLISH, newest_letters
from buffer.flush.claim import claim
from buffer.flush.freeze import LeasedBatch, ids_of_batches
from buffer.streams import GROUP, Stream, streams
from config.database.clock import database_now
from config.database.retry import full_jitter
from config.database.upsert import Rewrite, uuid_writer
from config.kafka import Failed, Outgoing, Producer, Refused, Replayed, SendResult, Sent, topic_name
from config.kafka.client import KafkaError
from config.processes import worker
from config.telemetry import metrics, tracing
from config.telemetry.logs import RowIds, log, log_committed
from outbox.bookkeeping import counters
from outbox.bookkeeping.watermarks import Watermarks
from outbox.letters.burial import Letter, bury
from outbox.letters.models import DeadLetter

# -- Stage 2: every claimed batch whose lease is free is published, then marked sent --------------------------
BATCHES_A_ROUND = 400
SETTLE_ATTEMPTS = 10

SENT = Rewrite(
    Batch,
    key="batch_id",
    changes="output_partition output_offset",
    constants="status sent_at lease_token lease_until",
    guard="old.status = 'claimed'",
)


def lease_unsent(wanted: Sequence[Stream], token: uuid.UUID | None = None) -> tuple[uuid.UUID, list[LeasedBatch]]:
    """Take over claimed batches that nobody holds, oldest first per location, and those that `token` holds already.

    A batch waits while an older one of its location is unsent and not leased here, too: two flushers
    must not overtake each other at one warehouse.
    """
    token = token or uuid.uuid4()
    with transaction.atomic():
        now = database_now()
        ours = Batch.objects.claimed().of_streams([stream.name for stream in wanted]).oldest_first()
        candidates = list(ours.lock_free(now, token).defer("event_ids", "months")[:BATCHES_A_ROUND])
        locations = {batch.location_id for batch in candidates}
        unsent = Batch.objects.claimed().at(locations).values_list("stream", "location_id", "sequence")
        batches = in_order(candidates, unsent) if candidates else []
        until = now + timedelta(seconds=settings.BUFFER_LEASE_SECONDS)
        Batch.objects.lease([batch.pk for batch in batches], token, until, now)
        if batches:
            orders = sum(batch.event_count for batch in batches)
            log_committed("batches_leased", batches=len(batches), ids=ids_of_batches(batches, orders))
    return token, list(map(_leased, batches))


def _leased(batch: Batch) -> LeasedBatch:
    orders = 0 if batch.supplement_of else batch.event_count
    return LeasedBatch(batch.pk, batch.stream, batch.location_id, batch.payload, batch.headers, orders, batch.attempts)


def in_order(candidates: Sequence[Batch], unsent: Iterable[tuple[str, str, int]]) -> list[Batch]:
    """Those candidates that come before every unsent batch of their location which is not a candidate."""
    mine = {(batch.stream, batch.location_id, batch.sequence) for batch in candidates}
    first_foreign: defaultdict[tuple[str, str], float] = defaultdict(lambda: float("inf"))
    for stream, location, sequence in unsent:
        if (stream, location, sequence) not in mine:
            place = (stream, location)
            first_foreign[place] = min(first_foreign[place], sequence)
    ordered = sorted(candidates, key=lambda batch: (batch.claimed_at, batch.sequence))
    return [batch for batch in ordered if batch.sequence < first_foreign[batch.stream, batch.location_id]]


def publish(batches: Sequence[LeasedBatch], token: uuid.UUID, producer: Producer) -> bool:
    """Send leased batches and settle them; False when the broker did not take them all."""
    if not batches:
        return True
    began = time.time_ns()
    outcomes = producer.send_all([message_of(batch) for batch in batches])
    for batch, outcome in zip(batches, outcomes, strict=True):
        with tracing.span("send batch", batch.headers["traceparent"], kind="producer", began=began):
            if not isinstance(outcome, Sent):
                tracing.fail(type(outcome).__name__.lower())

    def unit() -> None:
        with transaction.atomic():
            settle(list(zip(batches, outcomes, strict=True)), token, database_now())

    # Again after a deadlock or a lost connection: batches that are not settled go out once more.
    worker.until_it_stands(unit, "settle", lambda failures, _remedy: failures < SETTLE_ATTEMPTS)
    return not any(isinstance(outcome, Failed) for outcome in outcomes)


def message_of(batch: LeasedBatch) -> Outgoing:
    """The frozen bytes: every attempt sends the same."""
    # Sorted, because MySQL hands the keys of a JSON object back in an order of its own.
    headers = [(name, value.encode()) for name, value in sorted(batch.headers.items())]
    output = streams()[batch.stream].output
    return Outgoing(topic_name(output), batch.location_id, batch.payload.encode(), headers)


def settle(results: Sequence[tuple[LeasedBatch, SendResult]], token: uuid.UUID, now: datetime) -> None:
    """Write what became of each batch, for those still held by `token`."""
    ours = Batch.objects.claimed().held_by(token).filter(pk__any={batch.pk for batch, _ in results})
    held = set(ours.select_for_update().values_list("pk", flat=True))
    lost = len(results) - len(held)
    if lost:
        metrics.FENCE_LOST.inc(lost)
        ids = RowIds([batch for batch, _ in results if batch.pk not in held], row_id="pk")
        log_committed("fence_lost", "warning", table="buffer_batch", lost=lost, token=str(token), ids=ids)
    kept = [(batch, outcome) for batch, outcome in results if batch.pk in held]
    _settle_sent([(batch, outcome) for batch, outcome in kept if isinstance(outcome, Sent)], now)
    _settle_failed([(batch, outcome) for batch, outcome in kept if isinstance(outcome, Failed)], now)
    for batch, outcome in kept:
        metrics.PUBLISHED.labels(batch.stream, type(outcome).__name__.lower()).inc()
    _park([(batch, outcome.error) for batch, outcome in kept if isinstance(outcome, Refused)], now)


def _settle_sent(results: Sequence[tuple[LeasedBatch, Sent]], now: datetime) -> None:
    """Mark the batches as sent; their orders then read as sent (buffer/events/models.py)."""
    if not results:
        return
    text = uuid_writer()
    settled = SENT.run(
        [(text(batch.pk), outcome.partition, outcome.offset) for batch, outcome in results],
        {"status": Batch.Status.SENT.value, "sent_at": now, "lease_token": None, "lease_until": None},
    )
    if settled != len(results):
        # Locked rows cannot change under us; if they did, nothing of this transaction may stay.
        raise RuntimeError(f"settled {settled} of {len(results)} locked batches")
    counts: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    for batch, _ in results:
        counts[batch.stream, "flush", "batches_sent"] += 1
        counts[batch.stream, "flush", "events_sent"] += batch.orders
    counters.add(counts, now)
    events = sum(batch.orders for batch, _ in results)
    log_committed("batches_sent", batches=len(results), events=events, ids=_ids_of(results))


def _settle_failed(results: Sequence[tuple[LeasedBatch, Failed]], now: datetime) -> None:
    """Try again later, however often: an outage is not the batch's fault."""
    if not results:
        return
    attempt = max(batch.attempts for batch, _ in results) + 1
    later = now + timedelta(seconds=0.5 + full_jitter(attempt, base=0.5, cap=15))
    Batch.objects.filter(pk__in=[batch.pk for batch, _ in results]).update(
        lease_token=None, lease_until=later, attempts=attempt, error=results[0][1].error
    )
    log_committed("publish_failed", "warning", batches=len(results), error=results[0][1].error, ids=_ids_of(results))


def _park(refused: Sequence[tuple[LeasedBatch, str]], now: datetime) -> None:
    """The broker refuses these for good, with an error each: a letter frees its batch (requeue) or closes it (discard)."""
    if not refused:
        return
    alike: defaultdict[tuple[str, int], list[uuid.UUID]] = defaultdict(list)
    for batch, error in refused:
        alike[error, batch.attempts + 1].append(batch.pk)
    for (error, attempts), pks in alike.items():
        Batch.objects.filter(pk__any=pks).put(Batch.Status.PARKED, error=error, attempts=attempts)
    before = newest_letters([batch.pk for batch, _ in refused])
    bury([_letter(batch, error, before.get(str(batch.pk)), now) for batch, error in refused], "", now)
    log_committed("batches_parked", "warning", batches=len(refused), error=refused[0][1], ids=_ids_of(refused))


def _ids_of(outcomes: Sequence[tuple[LeasedBatch, object]]) -> RowIds:
    # A supplement carries one order, which was counted with the batch before it.
    return ids_of_batches([batch for batch, _ in outcomes], sum(batch.orders or 1 for batch, _ in outcomes))


def _letter(batch: LeasedBatch, error: str, before: DeadLetter | None, now: datetime) -> Letter:
    """Of the revision behind the letter that the batch left last."""
    topic, pk = topic_name(streams()[batch.stream].output), str(batch.pk)
    key, value = batch.location_id.encode(), batch.payload.encode()
    headers = [(name, text.encode()) for name, text in batch.headers.items()]
    record = Replayed(topic, -1, batch.attempts, int(now.timestamp() * 1000), key, value, headers)
    revision, predecessor = (before.revision + 1, before.pk) if before else (0, None)
    return Letter(
        batch.stream, PUBLISH, "batch_refused", error, record, pk, revision, business_key=pk, predecessor=predecessor
    )


# -- The flusher ---------------------------------------------------------------------------------------------
LONGEST_SLEEP = 1.0
SHORTEST_SLEEP = 0.02


class Flusher:
    """One worker; any number may run side by side."""

    def __init__(
        self, streams: Sequence[Stream], producer: Producer, must_wait: Callable[[], bool] = lambda: False
    ) -> None:
        self.streams = streams
        self.producer = producer
        self.must_wait = must_wait
        # One for its life: whatever bears it between two rounds was left by one that failed, or by a commit whose answer
        # was lost, and is taken up at once.
        self.token = uuid.uuid4()
        self.waiting = False
        self.broker_away = False
        metrics.from_zero(metrics.PUBLISHED, [stream.name for stream in streams], ["sent", "failed", "refused"])

    def tick(self) -> int:
        """One round; returns how many batches left.

        What was cut leaves in any case: its bytes stay the same, whatever a restored database has forgotten.
        """
        self.waiting = self.must_wait()  # first: it tells a new connection by that there is none yet
        started = time.perf_counter()
        token, batches = lease_unsent(self.streams, self.token)
        if batches:
            self.broker_away = not publish(batches, token, self.producer)
        done = 0 if self.broker_away else len(batches)
        for stream in () if self.waiting else self.streams:
            # While the broker is away, buckets go on filling: cutting them now would only make small batches.
            if self.broker_away:
                break
            round_ = claim(stream, self.token)
            self.broker_away = not publish(round_.batches, round_.token, self.producer)
            done += len(round_.batches)
        if done:
            metrics.FLUSH_SECONDS.observe(time.perf_counter() - started)
        return done

    def pause(self) -> float:
        """Seconds until the next bucket is due, at most one."""
        if self.waiting:
            return LONGEST_SLEEP
        now = database_now()
        waits = [
            (due - now).total_seconds()
            for stream in self.streams
            for due in Bucket.objects.of_stream(stream.name).waiting().values_list("due_at", flat=True)[:1]
            if due
        ]
        return max(SHORTEST_SLEEP, min([LONGEST_SLEEP, *waits]))


INTERVAL = 1.0  # seconds between two questions to the broker


class Gap:
    """Whether this database remembers less than the group has committed.

    Orders that wait in an old backup may have been sent since with other contents; cut again, they would be sent
    twice. The broker is asked only after a new connection, which may lead to another database, and while a gap is open.
    """

    def __init__(self, streams: Sequence[Stream]) -> None:
        self.streams = streams
        self.closed = False
        self.next_look = 0.0

    def is_open(self) -> bool:
        if connection.connection is None:
            self.closed = False
        if not self.closed and time.monotonic() >= self.next_look:
            self.next_look = time.monotonic() + INTERVAL
            self.closed = not self._behind()
        return not self.closed

    def _behind(self) -> bool:
        try:
            topics = {stream.name: topic_name(stream.topic) for stream in self.streams}
            behind = [name for name, topic in topics.items() if Watermarks().behind(topic_name(GROUP), topic)]
        except KafkaError as error:
            log.warning("broker_unavailable", worker="flush_buffer", error=str(error))
            return True
        if behind:
            log.warning("waits_for_ingestion", streams=behind)
        return bool(behind)
