"""The catalogue: every metric of Spillway's flows, with its labels and one line of meaning."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram, start_http_server

INGESTED = Counter(
    "spillway_ingest_records", "Records read from Kafka, by what became of them.", ["stream", "outcome"]
)
INGEST_SECONDS = Histogram("spillway_ingest_seconds", "Database time of one ingested batch.", ["stream"])
FLUSHED = Counter(
    "spillway_flush_batches", "Batches cut, by the rule that made them due.", ["stream", "reason"]
)
FLUSH_SECONDS = Histogram("spillway_flush_seconds", "Time from claim to settled, per round of the flusher.")
PUBLISHED = Counter("spillway_publish_batches", "Batches by outcome of publishing.", ["stream", "outcome"])
RERUN = Counter("spillway_transaction_rerun", "Transactions run again from BEGIN.", ["worker", "cause"])
BISECTED = Counter(
    "spillway_batch_bisected", "Batches split to find a record the database refuses.", ["worker"]
)
FENCE_LOST = Counter("spillway_fence_lost", "Rows a late worker no longer owned when it came to settle them.")
RECOVERED = Counter("spillway_recovered", "Rows returned from workers that did not come back.")
BURIED = Counter("spillway_dead_letters", "Dead letters written.", ["source", "reason"])
PRODUCER_REBUILT = Counter("spillway_producer_rebuilt", "Kafka producers replaced after a fatal error.")
PARTITION_STOPPED = Gauge(
    "spillway_partition_stopped",
    "1 while a partition waits for --accept-reset.",
    ["group", "topic", "partition"],
)
CONSUMER_LAG_RECORDS = Gauge(
    "spillway_consumer_lag_records", "Records between position and log end.", ["group", "topic", "partition"]
)
CONSUMER_LAG_SECONDS = Gauge(
    "spillway_consumer_lag_seconds",
    "Seconds since the consumer last reached the log end.",
    ["group", "topic", "partition"],
)
PENDING_EVENTS = Gauge("spillway_buffer_pending_events", "Open rows of the event buffer.", ["stream"])
OLDEST_PENDING = Gauge("spillway_buffer_oldest_pending_seconds", "Age of the oldest open bucket.")
LETTERS_OPEN = Gauge("spillway_dead_letters_open", "Dead letters that wait for a person.", ["source"])
PARTITION_RUNWAY = Gauge("spillway_partition_runway_days", "Days until the last partition ends.", ["table"])


def serve(port: int) -> None:
    """Serve /metrics on `port` from a daemon thread; 0 serves nothing."""
    if port:
        start_http_server(port)
