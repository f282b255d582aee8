"""The aggregator as the rest of Spillway sees it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice

import msgspec
from django.db.models import Sum

from buffer import verify
from buffer.events.models import Batch, Bucket
from buffer.flush import batch_letters
from buffer.flush.freeze import iso
from buffer.home import OVERDUE, BufferNumbers, needs, stages
from buffer.ingest.handler import Ingest
from buffer.order_letters import KINDS
from buffer.partitioned import sweep_batches, sweep_minutes
from buffer.streams import GROUP, Stream, streams
from config.admin import humanize
from config.causes import UNPUBLISHED, Line, fact
from config.database.clock import database_now
from config.flows import Check, Need, Reading, Sample, Stage, Worker
from config.kafka import Record, topic_name
from config.letters import Letters
from config.telemetry import metrics
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import Watermark
from outbox.letters.overview import letters_ever
from outbox.letters.topic_flow import TopicFlow


class Aggregator(TopicFlow[BufferNumbers]):
    """Per-order messages become one batch per warehouse."""

    name = "buffer"
    purpose = "One batch per warehouse"
    page = "admin:buffer_bucket_changelist"
    group = GROUP
    command = "ingest_events"
    reader = "Ingest"
    unread = "order messages unread"
    urgent_steps = (batch_letters.PUBLISH,)
    numbers_class = BufferNumbers
    headline = ("orders waiting", "batches sent")

    def workers(self) -> Sequence[Worker]:
        return [Worker(self.command), Worker("flush_buffer")]

    def topics(self) -> Sequence[str]:
        return [stream.topic for stream in streams().values()]

    def stages(self, numbers: BufferNumbers) -> Iterator[Stage]:
        return stages(numbers)

    def own_needs(self, numbers: BufferNumbers) -> Iterator[Need]:
        return needs(numbers)

    def gauges(self, now: datetime) -> Iterator[Reading]:
        numbers = self.numbers(now)
        for name in numbers.names:
            yield Reading(metrics.PENDING_EVENTS, counters.totals(name).get("open", 0), {"stream": name})
        yield Reading(metrics.OLDEST_PENDING, numbers.oldest.total_seconds() if numbers.oldest else 0)
        yield from super().gauges(now)

    def verify(self) -> Iterator[Check]:
        return verify.checks(list(streams()))

    def verify_payloads(self) -> Iterator[Check]:
        return verify.payload_checks()

    def verify_kafka(self) -> Iterator[Check]:
        return verify.kafka_checks(streams().values())

    def samples(self, seed: int) -> Iterator[Sample]:
        others = [_samples_of(stream, seed) for stream in streams().values()]
        for sample in transfer_requests(topic_name("transfer-requests"), seed):
            yield sample
            yield from (other for source in others for other in islice(source, 1))

    def arrived(self) -> int:
        return sum(counters.totals(name).get("read", 0) for name in streams())

    def waiting(self) -> Sequence[tuple[str, int]]:
        return [
            *super().waiting(),
            ("orders waiting", Bucket.objects.waiting().aggregate(total=Sum("open_count"))["total"] or 0),
            ("batches unsent", Batch.objects.claimed().count()),
        ]

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
        now = database_now()
        numbers = self.numbers(now)
        for stream in streams().values():
            yield Watermark.objects.of_topic(stream.topic).diagnosis(f"stream {stream.name}", self.command, now)
        late = max(numbers.overdue, numbers.unsent_for)
        waits = f"what is due has waited for {humanize.length(late.total_seconds())}: is flush_buffer running?"
        said = waits if late > OVERDUE else "nothing due waits"
        yield Line("flush", late <= OVERDUE, said, fact(UNPUBLISHED, "flush_buffer"))

    def sweep(self, now: datetime) -> int:
        return sweep_batches(now) + sweep_minutes(streams(), now)

    def searched(self) -> Mapping[str, Callable[[Record], Sequence[str]]]:
        orders = {topic_name(stream.topic): partial(_order_in, stream) for stream in streams().values()}
        return {**orders, **{topic_name(stream.output): _batch_in for stream in streams().values()}}

    def letters(self) -> Sequence[Letters]:
        return [kind(stream) for stream in streams().values() for kind in KINDS]

    def replays(self) -> Mapping[str, Callable[[], Ingest]]:
        return {stream.topic: partial(Ingest, stream) for stream in streams().values()}


def _order_in(stream: Stream, record: Record) -> Sequence[str]:
    return [stream.gate.decode(record.value).order_id]


def _batch_in(record: Record) -> Sequence[str]:
    return [value.decode(errors="replace") for name, value in record.headers if name == "batch_id" and value]


def _samples_of(stream: Stream, seed: int) -> Iterator[Sample]:
    for key, message in stream.samples(seed):
        yield Sample(topic_name(stream.topic), key, msgspec.json.encode(message))


# -- Sample traffic: repeats, updates, and now and then poison -----------------------------------------------
WAREHOUSES = [f"WH-{number:02d}" for number in range(1, 41)]
SKUS = [f"SKU-{number:04d}" for number in range(300)]
POISON = [b"{not json", b'{"order_id": 7}', b"\xff\xfe", b'{"order_id": "a\\u0000b"}', b"[" * 60 + b"]" * 60]


def transfer_requests(topic: str, seed: int, poison: float = 0.004) -> Iterator[Sample]:
    """Endless samples; one in ten is a repeat, one in twenty changes an order that was sent before."""
    rng = random.Random(seed)  # noqa: S311 (sample data)
    recent: list[dict] = []
    number = 0
    while True:
        draw = rng.random()
        if draw < poison:
            yield Sample(topic, rng.choice(WAREHOUSES), rng.choice(POISON))
            continue
        if recent and draw < 0.10:
            order = rng.choice(recent)
        elif recent and draw < 0.15:
            order = {**rng.choice(recent[-40:]), "items": _items(rng)}
            recent[:] = [order if known["order_id"] == order["order_id"] else known for known in recent]
        else:
            number += 1
            order = {
                "order_id": f"A{seed:02d}-{number:07d}",
                "location_id": rng.choice(WAREHOUSES),
                "ordered_at": iso(datetime.now(UTC)),
                "items": _items(rng),
            }
            recent = [*recent[-199:], order]
        yield Sample(topic, order["location_id"], msgspec.json.encode(order))


def _items(rng: random.Random) -> list[dict]:
    return [{"sku": sku, "quantity": rng.randint(1, 12)} for sku in rng.sample(SKUS, rng.choice([1, 1, 2, 2, 3, 5]))]
