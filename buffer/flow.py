"""The aggregator as the rest of Spillway sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial

from buffer import verify
from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.flush import verify_kafka
from buffer.ingest.handler import Ingest
from buffer.retention import sweep_batches, sweep_minutes
from buffer.samples import transfer_requests
from buffer.streams import Stream, streams
from buffer.supplement import foresee, send_late
from config.flows import Check, Flow, Forecast, Picture, Reading, Refusal, Sample, Worker
from config.kafka import Record, topic_name
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import Watermark
from outbox.letters.models import DeadLetter
from outbox.letters.overview import letters_ever
from outbox.letters.redelivery import batch_of


class Aggregator(Flow):
    """Per-order messages become one batch per warehouse."""

    name = "buffer"
    headline = ("orders waiting", "batches sent")

    def workers(self) -> Sequence[Worker]:
        return [Worker("ingest_events"), Worker("flush_buffer")]

    def picture(self, now: datetime) -> Picture | None:
        from buffer.picture import picture

        return picture(now)

    def gauges(self, now: datetime) -> Iterator[Reading]:
        from buffer.measures import gauges

        return gauges(now)

    def verify(self) -> Iterator[Check]:
        return verify.checks(list(streams()))

    def verify_payloads(self) -> Iterator[Check]:
        return verify.payload_checks()

    def verify_kafka(self) -> Iterator[Check]:
        return verify_kafka.checks(streams().values())

    def samples(self, seed: int) -> Iterator[Sample]:
        return transfer_requests(topic_name("transfer-requests"), seed)

    def arrived(self) -> int:
        return sum(counters.totals(name).get("read", 0) for name in streams())

    def is_drained(self) -> bool:
        return not Bucket.objects.waiting().exists() and not Batch.objects.claimed().exists()

    def summary(self) -> Sequence[tuple[str, int]]:
        totals = [counters.totals(name) for name in streams()]

        def total(*names: str) -> int:
            return sum(counts.get(name, 0) for counts in totals for name in names)

        return [
            ("messages read", total("read")),
            ("orders accepted", total("accepted")),
            ("repeats and updates", total("redelivered", "superseded")),
            ("dead letters of orders", letters_ever(self.sources())),
            ("orders waiting", total("open")),
            ("orders sent", total("events_sent")),
            ("batches sent", total("batches_sent")),
        ]

    def diagnose(self) -> Iterator[tuple[str, bool, str]]:
        for stream in streams().values():
            yield f"stream {stream.name}", *Watermark.objects.of_topic(stream.topic).diagnosis()

    def sweep(self, now: datetime) -> int:
        return sweep_batches(now) + sweep_minutes(streams(), now)

    def searched(self) -> Mapping[str, Callable[[Record], Sequence[str]]]:
        orders = {topic_name(stream.topic): partial(_order_in, stream) for stream in streams().values()}
        return {**orders, **{topic_name(stream.output): _batch_in for stream in streams().values()}}

    # -- dead letters -----------------------------------------------------------------------------------

    def sources(self) -> Sequence[str]:
        return list(streams())

    def requeue(self, letter: DeadLetter, now: datetime) -> str:
        stream = streams()[letter.source]
        if letter.step == "publish":
            return _free_batch(letter)
        if letter.step == "late":
            return send_late(stream, letter, now)
        return _handle_again(stream, letter, now)

    def forecast(self, letter: DeadLetter) -> Forecast | None:
        stream = streams()[letter.source]
        if letter.step == "late":
            return foresee(stream, letter)
        if letter.step == "publish":
            return Forecast("warn", "Its batch is published again.", "The broker refuses it until its limit is raised.")
        batch = batch_of(letter)
        failed = Ingest(stream).prepare(batch).letters
        return Forecast("warn", "Fails again.", failed[0].error) if failed else None

    def replays(self) -> Mapping[str, Callable[[], Ingest]]:
        return {stream.topic: partial(Ingest, stream) for stream in streams().values()}

    def discard(self, letter: DeadLetter, now: datetime) -> str:
        return _discard_batch(letter, now) if letter.step == "publish" else "discarded"


def _handle_again(stream: Stream, letter: DeadLetter, now: datetime) -> str:
    """Store the letter's record with the flow's own handler, at its position and the next revision."""
    batch = batch_of(letter)
    handler = Ingest(stream)
    batch.prepared = handler.prepare(batch)
    handler.write(batch, now)
    failed = batch.prepared.letters
    return f"failed again: {failed[0].error}"[:200] if failed else "handled again"


def _free_batch(letter: DeadLetter) -> str:
    if not Batch.objects.parked().filter(pk=letter.business_key).put(Batch.Status.CLAIMED):
        raise Refusal("the batch is no longer parked")
    return "the batch is published again"


def _discard_batch(letter: DeadLetter, now: datetime) -> str:
    batch = Batch.objects.parked().select_for_update().filter(pk=letter.business_key).first()
    if batch is None:
        raise Refusal("the batch is no longer parked")
    # Its orders first: as soon as the batch is no longer parked they read as sent.
    rows = BufferedEvent.objects.discard_claimed(batch, now)
    Batch.objects.parked().filter(pk=batch.pk).update(status=Batch.Status.DISCARDED)
    counters.add({(batch.stream, "flush", "discarded"): rows}, now)
    return f"the batch and its {rows} orders are discarded"


def _order_in(stream: Stream, record: Record) -> Sequence[str]:
    return [stream.gate.decode(record.value).order_id]


def _batch_in(record: Record) -> Sequence[str]:
    return [value.decode(errors="replace") for name, value in record.headers if name == "batch_id"]
