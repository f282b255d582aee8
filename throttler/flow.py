"""The throttler as the rest of Spillway sees it."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from django.db.models import F, Q, Sum

from config.database.clock import database_now
from config.flows import Check, Need, Reading, Sample, SampleAction, Stage, Worker
from config.kafka import Record, topic_name
from config.letters import Letters
from config.telemetry import metrics
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import Watermark
from outbox.letters.overview import letters_ever
from outbox.letters.topic_flow import TopicFlow
from throttler import verify
from throttler.customers.models import Customer
from throttler.engine.output_transaction import EXPIRED, INPUT, OUTPUT
from throttler.engine.row_writer import GROUP
from throttler.home import ThrottlerNumbers, needs, stages, still_expiring
from throttler.lanes.models import Lane, LaneOwner
from throttler.lanes.read_model import FLOW
from throttler.messages import gate
from throttler.notification_letters import WHY_NO_REPLAY, NotificationLetters

RECENT = timedelta(seconds=5)


class Throttler(TopicFlow[ThrottlerNumbers]):
    """Every customer at their rate: at once when possible, buffered when not."""

    name = FLOW
    purpose = "Every customer at their rate"
    page = "admin:throttler_customer_changelist"
    group = GROUP
    command = "run_throttler"
    reader = "The throttler"
    unread = "notifications unread"
    parked = ("parked", "lost")
    numbers_class = ThrottlerNumbers
    headline = ("throttled now",)

    def workers(self) -> Sequence[Worker]:
        return [Worker("run_throttler")]

    def topics(self) -> Sequence[str]:
        return [INPUT]

    def stages(self, numbers: ThrottlerNumbers) -> Iterator[Stage | Sequence[Stage]]:
        return stages(numbers)

    def own_needs(self, numbers: ThrottlerNumbers) -> Iterator[Need]:
        return needs(numbers)

    def still_so(self, kind: str, keys: Collection[str], now: datetime) -> Collection[str]:
        return still_expiring(keys, now) if kind == "expiring" else ()

    def gauges(self, now: datetime) -> Iterator[Reading]:
        numbers = self.numbers(now)
        yield Reading(metrics.THROTTLER_BACKLOG, numbers.backlog)
        yield Reading(metrics.THROTTLER_OLDEST, numbers.oldest_age.total_seconds())
        yield Reading(metrics.THROTTLER_LIFE, numbers.used)
        for owner in LaneOwner.objects.filter(starts__gt=1).order_by("name"):
            yield Reading(metrics.THROTTLER_OWNER_STARTS, owner.starts, {"owner": owner.name})
        yield from super().gauges(now)

    def verify(self) -> Iterator[Check]:
        return verify.checks()

    def verify_kafka(self) -> Iterator[Check]:
        return verify.kafka_checks()

    def samples(self, seed: int) -> Iterator[Sample | SampleAction]:
        return notifications(seed)

    def arrived(self) -> int:
        """What is forwarded is read a second time, in its own partition."""
        totals = counters.totals(FLOW)
        return totals.get("read", 0) - totals.get("forwarded", 0) + customers_added()

    def waiting(self) -> Sequence[tuple[str, int]]:
        """What the owners know to be in the log and have not decided, and what waits for its rate."""
        since = database_now() - RECENT
        # A forwarded record leaves the mark of its transaction at the end of a log, which is read and never a position.
        read = Q(end_offset__lte=F("next_offset")) | Q(caught_up_at__gte=since)
        behind = Watermark.objects.of_group(GROUP).exclude(read)
        return [
            ("notifications unread", behind.unread()),
            ("notifications buffered", Lane.objects.aggregate(total=Sum("backlog"))["total"] or 0),
        ]

    def summary(self) -> Sequence[tuple[str, int]]:
        totals = counters.totals(FLOW)

        def total(*names: str) -> int:
            return sum(totals.get(name, 0) for name in names)

        return [
            ("notifications read", total("read")),
            ("notifications sent at once", total("live")),
            ("notifications buffered", total("buffered")),
            ("notifications sent", total("live", "drained")),
            ("notifications expired", total("expired", "expired_on_arrival", "purged")),
            ("dead letters of notifications", letters_ever(self.sources())),
            ("throttled now", total("buffered") - total(*verify.OUT)),
        ]

    def diagnose(self) -> Iterator[tuple[str, bool, str]]:
        now = database_now()
        yield from super().diagnose()
        running = LaneOwner.objects.reporting(now)
        loose = running.filter(transactions=False).order_by("name").first()
        if loose:
            said = f"{loose.name} runs without (KAFKA_TRANSACTIONS=off): at least once, one process"
        else:
            said = "used" if running.exists() else "no throttler reports"
        yield "throttler transactions", True, said

    def searched(self) -> Mapping[str, Callable[[Record], Sequence[str]]]:
        return dict.fromkeys(map(topic_name, (INPUT, OUTPUT, EXPIRED)), _names_in)

    def letters(self) -> Sequence[Letters]:
        return [NotificationLetters(FLOW)]

    def not_replayed(self) -> Mapping[str, str]:
        return {INPUT: WHY_NO_REPLAY}


def _names_in(record: Record) -> Sequence[str]:
    message = gate().decode(record.value)
    return [message.customer_id, message.notification_id]


# -- Sample traffic: many quiet customers, one over the rate, some poison ------------------------------------
QUIET = [f"C-{number:02d}" for number in range(1, 31)]
LOUD = "C-LOUD"
RATES = "8/s"
BUNCH = 12  # messages of the loud customer in a row, in each ROUND: over its rate for a moment, below it on the whole
ROUND = 60
POISON = [b"{not json", b'{"customer_id": "C-01"}', b"[]"]
SUBJECTS = ["Your parcel is on its way", "Your invoice", "We miss you", "A new sign-in", "Rate your order"]


def notifications(seed: int, poison: float = 0.004) -> Iterator[Sample | SampleAction]:
    """Endless samples; the first one makes the loud customer."""
    rng = random.Random(seed)  # noqa: S311 (sample data)
    yield SampleAction(add_loud_customer)
    number = 0
    while True:
        number += 1
        if rng.random() < poison:
            yield Sample(topic_name(INPUT), "poison", rng.choice(POISON))
            continue
        customer = LOUD if number % ROUND < BUNCH else rng.choice(QUIET)
        yield _sample(rng, customer)


def add_loud_customer() -> None:
    """A row for the one with a rate of its own; a known one stays as it is."""
    now = database_now()
    row = Customer(pk=LOUD, rates=RATES, burst=4, created_at=now, updated_at=now)
    Customer.objects.bulk_create([row], ignore_conflicts=True)


def customers_added() -> int:
    """How many of the samples that make customers have arrived."""
    return Customer.objects.filter(pk=LOUD).count()


def _sample(rng: random.Random, customer: str) -> Sample:
    body = {
        # Their ids come from the seed, so that the same traffic can be told from other traffic.
        "notification_id": str(uuid.UUID(int=rng.getrandbits(128), version=4)),
        "customer_id": customer,
        "recipient": f"user{rng.randint(1, 5000)}@example.org",
        "message": {"subject": rng.choice(SUBJECTS)},
        "created_at": datetime.now(UTC).isoformat(),
    }
    return Sample(topic_name(INPUT), customer, msgspec.json.encode(body))
