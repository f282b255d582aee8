"""The catalogue: every metric of Spillway's flows, with its labels and one line of meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import product

from django.conf import settings
from prometheus_client import REGISTRY, Counter, Gauge, Histogram, make_wsgi_app, start_http_server

from config.telemetry.activity import activity

Page = Callable[[dict[str, object], Callable[..., object]], Iterable[bytes]]  # WSGI

# A gauge without labels is exported as 0 until it is set, by every process. So those that the web process reads from the
# database (config/flows.py:Reading) are in no registry, and a worker's own joins when it is set (`set_own`).
NOWHERE = None


def from_zero(counter: Counter, *labels: Iterable[str]) -> None:
    """Export 0 for each combination of these labels; whoever is going to count calls it first.

    `increase()` does not see the count that a series is born with: the first refusals would be nobody's.
    """
    for values in product(*labels):
        counter.labels(*values)


INGESTED = Counter("spillway_ingest_records", "Records read from Kafka, by what became of them.", ["stream", "outcome"])
INGEST_SECONDS = Histogram("spillway_ingest_seconds", "Database time of one ingested batch.", ["stream"])
FLUSHED = Counter("spillway_flush_batches", "Batches cut, by the rule that made them due.", ["stream", "reason"])
FLUSH_SECONDS = Histogram("spillway_flush_seconds", "Time from claim to settled, per round of the flusher.")
PUBLISHED = Counter("spillway_publish_batches", "Batches by outcome of publishing.", ["stream", "outcome"])
LEDGER_RECORDS = Counter(
    "spillway_ledger_movements", "Records of the stock topics, by what became of them.", ["topic", "outcome"]
)
INTAKE_RECORDS = Counter(
    "spillway_intake_records",
    "Records in which services promise messages, by what became of them.",
    ["topic", "outcome"],
)
DELIVERIES = Counter(
    "spillway_delivery", "Tries to deliver a message, by outcome.", ["channel", "event_type", "outcome"]
)
# The types of messages whose tries have series of their own; an app adds its own when it starts (`AppConfig.ready`).
EVENT_TYPES: set[str] = set()
OTHER_TYPE = "other"
DELIVERY_SECONDS = Histogram("spillway_delivery_seconds", "Time of one call of a handler.", ["channel"])
COMMIT_TO_SEND = Histogram(
    "spillway_commit_to_send_seconds",
    "From the writing of a message to its acceptance by the other side.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.4, 0.5, 1, 2.5, 5, 10, 30, 60, 90, 300, 3600),
)
CDC_LEG_SECONDS = Histogram(
    "spillway_cdc_leg_seconds",
    "Legs of a message sent by change capture: record (in Kafka), claim, try, settle.",
    ["leg"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 1, 2.5, 5, 10, 30),
)
OUTBOX_CLAIMS = Counter("spillway_outbox_claims", "Messages claimed, by path.", ["path"])
OUTBOX_POLL_SECONDS = Histogram(
    "spillway_outbox_poll_seconds", "A round of the relay that found something, from claim to settled."
)
REPLICA_LAG = Gauge(
    "spillway_replica_lag_seconds",
    "How far the read replica is behind, by the newest report of a worker in it.",
    registry=NOWHERE,
)
CLOCK_AHEAD = Gauge(
    "spillway_clock_ahead_seconds",
    "How far the clock of this process's machine is ahead of the database's; negative: behind.",
    registry=NOWHERE,
)
OUTBOX_PENDING = Gauge(
    "spillway_outbox_pending", "Messages that wait to be sent; counted up to 100,000.", registry=NOWHERE
)
OUTBOX_OLDEST_PENDING = Gauge(
    "spillway_outbox_oldest_pending_seconds",
    "How long the message of a channel has waited that has been due longest, whether the channel is open or not.",
    ["channel"],
    registry=NOWHERE,
)
OUTBOX_STUCK = Gauge(
    "spillway_outbox_processing_stuck",
    "Messages whose worker's lease ran out and that nobody recovered.",
    registry=NOWHERE,
)
CDC_LAG = Gauge(
    "spillway_cdc_lag_seconds", "Age of the oldest message that the CDC path has not brought.", registry=NOWHERE
)
WORKERS = Gauge(
    "spillway_workers", "Worker processes that reported within a day.", ["command", "state"], registry=NOWHERE
)
BREAKER_OPEN = Gauge(
    "spillway_breaker_open", "1 while a channel's circuit breaker is open.", ["channel"], registry=NOWHERE
)
CHANNEL_PAUSED = Gauge(
    "spillway_channel_paused", "1 while a channel waits for somebody to resume it.", ["channel", "by"], registry=NOWHERE
)
CHANNEL_CLOSED = Gauge(
    "spillway_channel_closed",
    "1 while a channel may not send: it is paused, its breaker is open, or it was told to wait.",
    ["channel"],
    registry=NOWHERE,
)
OUTBOX_HELD = Gauge(
    "spillway_outbox_held",
    "Uncertain messages whose time is over: a person decides; counted up to 1,000.",
    registry=NOWHERE,
)
KEYS_OVERDUE = Gauge(
    "spillway_idempotency_overdue_seconds",
    "How long the oldest idempotency key has outlived its window.",
    registry=NOWHERE,
)
ORDER_WRITE_SECONDS = Histogram(
    "spillway_order_write_seconds",
    "A change of an order with the message it promises, from reading to committed.",
    buckets=(0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)
WEBHOOKS = Counter("spillway_webhooks", "Webhook events, by verdict.", ["provider", "verdict"])
WEBHOOKS_OPEN = Gauge(
    "spillway_webhooks_open", "Webhook events that are stored and not applied; counted up to 100,000.", registry=NOWHERE
)
THROTTLED = Counter("spillway_throttler_messages", "Messages of committed transactions, by their way.", ["path"])
THROTTLER_EXPIRED = Counter("spillway_throttler_expired", "Messages given up because their life was over.")
THROTTLER_TRANSACTIONS = Counter("spillway_throttler_transactions", "Kafka transactions, by outcome.", ["outcome"])
THROTTLER_TRANSACTION_SECONDS = Histogram(
    "spillway_throttler_transaction_seconds",
    "From the begin of a transaction to its outcome.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 8, 10),
)
THROTTLER_RESTORE_SECONDS = Histogram(
    "spillway_throttler_restore_seconds",
    "From the assignment of a partition to its first decision.",
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
)
THROTTLER_STALLED = Gauge(
    "spillway_throttler_stalled", "1 while a partition is not read because the store takes nothing.", ["partition"]
)
THROTTLER_OUTPUT_SHARE = Gauge(
    "spillway_throttler_output_share",
    "The part of THROTTLER_OUTPUT_RATE that this process was granted last, of 1.",
    registry=NOWHERE,
)
THROTTLER_LOST_ROWS = Counter("spillway_throttler_lost_rows", "Buffered rows that the store did not have any more.")
THROTTLER_BACKLOG = Gauge(
    "spillway_throttler_backlog", "Messages that wait for their customer's rate.", registry=NOWHERE
)
THROTTLER_OLDEST = Gauge("spillway_throttler_oldest_seconds", "Age of the oldest message that waits.", registry=NOWHERE)
THROTTLER_LIFE = Gauge(
    "spillway_throttler_life_used_ratio",
    "How much of its life the message that waits nearest to its end has used, of 1.",
    registry=NOWHERE,
)
THROTTLER_OWNER_STARTS = Gauge(
    "spillway_throttler_owner_starts",
    "How often a throttler's name was taken by another process.",
    ["owner"],
    registry=NOWHERE,
)
RERUN = Counter("spillway_transaction_rerun", "Transactions run again from BEGIN.", ["worker", "cause"])
BISECTED = Counter("spillway_batch_bisected", "Batches split to find a record the database refuses.", ["worker"])
FENCE_LOST = Counter("spillway_fence_lost", "Rows a late worker no longer owned when it came to try or to settle them.")
RECOVERED = Counter("spillway_recovered", "Rows returned from workers that did not come back.")
BURIED = Counter("spillway_dead_letters", "Dead letters written.", ["source", "reason"])
PRODUCER_REBUILT = Counter("spillway_producer_rebuilt", "Kafka producers replaced after a fatal error.")
PARTITION_STOPPED = Gauge(
    "spillway_partition_stopped", "1 while a partition waits for --accept-reset.", ["group", "topic", "partition"]
)
CONSUMER_LAG_RECORDS = Gauge(
    "spillway_consumer_lag_records", "Records between position and log end.", ["group", "topic", "partition"]
)
CONSUMER_LAG_SECONDS = Gauge(
    "spillway_consumer_lag_seconds",
    "Seconds since the consumer last reached the log end.",
    ["group", "topic", "partition"],
    registry=NOWHERE,
)
PENDING_EVENTS = Gauge("spillway_buffer_pending_events", "Open rows of the event buffer.", ["stream"], registry=NOWHERE)
OLDEST_PENDING = Gauge("spillway_buffer_oldest_pending_seconds", "Age of the oldest open bucket.", registry=NOWHERE)
LETTERS_OPEN = Gauge("spillway_dead_letters_open", "Dead letters that wait for a person.", ["source"], registry=NOWHERE)
LETTERS_REQUEUED = Gauge(
    "spillway_dead_letters_requeued",
    "Dead letters taken back, without proof of their effect.",
    ["source"],
    registry=NOWHERE,
)
LETTERS_FAILED_AGAIN = Gauge(
    "spillway_dead_letters_failed_again",
    "Letters that failed again after a requeue, of the failure groups that have open ones.",
    ["source"],
    registry=NOWHERE,
)
LETTERS_OVERDUE = Gauge(
    "spillway_dead_letters_overdue",
    "Requeued dead letters that wait too long for their effect.",
    ["source"],
    registry=NOWHERE,
)
REPLAY_LETTERS = Counter("spillway_replay_letters", "Letters of replay batches, by outcome.", ["source", "outcome"])
NOTICES = Counter("spillway_notices", "Notices to people, by what the try came to.", ["outcome"])
NOTICES_OLDEST = Gauge(
    "spillway_notices_oldest_unsent_seconds",
    "Age of the oldest notice that should have been sent; 0 when none waits.",
    registry=NOWHERE,
)
NOTICES_FAILING = Gauge(
    "spillway_notices_subscriptions_failing", "Subscriptions whose last try failed.", registry=NOWHERE
)
AUDIT_UNSEALED = Gauge(
    "spillway_audit_unsealed_seconds",
    "Age of the oldest operator action that no seal names yet; 0 when all are sealed.",
    registry=NOWHERE,
)
PARTITION_RUNWAY = Gauge(
    "spillway_partition_runway_days", "Days until the last partition ends.", ["table"], registry=NOWHERE
)
PARTITION_AHEAD = Gauge("spillway_partition_ahead_days", "Days that rotation keeps ahead.", ["table"], registry=NOWHERE)


def event_label(event_type: str) -> str:
    """The type as a label, or `other`: any service may promise any type, and each would be a series for ever."""
    return event_type if event_type in EVENT_TYPES else OTHER_TYPE


def set_own(gauge: Gauge, value: float) -> None:
    """Set a gauge that only this process knows, and export it from now on."""
    gauge.set(value)
    with suppress(ValueError):  # it is there
        REGISTRY.register(gauge)


def serve(port: int) -> None:
    """Serve /metrics and /livez on `port` of METRICS_HOST from a daemon thread; 0 serves nothing."""
    if port:
        server, _ = start_http_server(port, addr=settings.METRICS_HOST)
        server.set_app(_with_livez(make_wsgi_app()))


def _with_livez(page: Page) -> Page:
    """For a supervisor that asks: 503 when the loop of this process hangs. One that waits for its database comes round."""

    def answer(environ: dict[str, object], start: Callable[..., object]) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/livez":
            return page(environ, start)
        hangs = activity.hangs()
        start("503 Service Unavailable" if hangs else "200 OK", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"the loop has not come round for long\n" if hangs else b"ok\n"]

    return answer
