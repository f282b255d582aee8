"""Drills about records and batches that nobody takes, topics that changed, and tables that nobody has looked after."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta

from tests.crash import databases
from tests.crash.traffic import REQUESTS, Sample
from tests.crash.wire import BATCHES, Wire, wait_for
from tests.drills.stage import AgedRows, Drill, Plan, Stage
from tests.drills.workers import ORDERS

TABLE = "outbox_outboxmessage"
AGE = "UPDATE outbox_idempotencykey SET created_at = created_at - INTERVAL '10' DAY"
AGE_BUCKETS = (
    "UPDATE buffer_bucket SET first_arrival = first_arrival - INTERVAL '40' MINUTE WHERE first_arrival IS NOT NULL"
)
MANY, AT_ONCE = 1_010_000, 10_000  # orders; the alert looks at a million
POISON = [b"{not json", b'{"order_id": 7}', b"\xff\xfe"]
CHILDREN = (
    "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
    f"JOIN pg_class p ON p.oid = i.inhparent WHERE p.relname = '{TABLE}'"
)
PARTS = (
    "SELECT partition_name FROM information_schema.partitions "
    f"WHERE table_schema = DATABASE() AND table_name = '{TABLE}' AND partition_name IS NOT NULL"
)


class PoisonFlood(Drill):
    """The producer corrects itself; its mistakes are resolved, group by group."""

    alerts = ("SpillwayDeadLettersOpen",)
    staged = "60 records of transfer-requests that are no orders"
    workers = ORDERS
    flow = "buffer"

    def fail(self, stage: Stage) -> None:
        with wire(stage) as topics:
            topics.produce([Sample(f"WH-{n % 7}", "", 0, POISON[n % 3]) for n in range(60)])

    def mend(self, stage: Stage) -> None:
        stage.manage("dead_letters", "list")
        letters = stage.platform.manage("dead_letters", "list", "--status", "open", "--json").stdout.splitlines()
        for group in sorted({json.loads(letter)["group"] for letter in letters}):
            stage.manage("dead_letters", "resolve", "--group", str(group), "--reason", "the producer sent them again")


class RunwayShort(Drill):
    """Nobody has rotated for a month: the next days have no partition until somebody does."""

    alerts = ("SpillwayPartitionRunwayShort", "SpillwayPartitionRunway")
    staged = f"the partitions of {TABLE} end tomorrow"

    def refusal(self, plan: Plan) -> str:
        return "SQLite has no partitions" if plan.url.startswith("sqlite") else ""

    def fail(self, stage: Stage) -> None:
        url = stage.environment["DATABASE_URL"]
        tomorrow = f"p{datetime.now(UTC) + timedelta(days=1):%Y%m%d}"
        by_table = url.startswith("postgres")
        for (name,) in databases.rows(url, CHILDREN if by_table else PARTS):
            if name.rpartition("_")[2] > tomorrow:
                databases.run(url, f"DROP TABLE {name}" if by_table else f"ALTER TABLE {TABLE} DROP PARTITION {name}")

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.manage("rotate_partitions", "--dry-run")
        stage.manage("rotate_partitions")


class KeysOverdue(AgedRows):
    """The daily round is done by hand."""

    alerts = ("SpillwayKeysOverdue",)
    staged = "no daily round for ten days (idempotency keys are aged)"

    def fail(self, stage: Stage) -> None:
        stage.first_mail()
        databases.run(stage.environment["DATABASE_URL"], AGE)

    def mend(self, stage: Stage) -> None:
        stage.manage("rotate_partitions")


class TopicRecreated(Drill):
    """Its records are looked at, and then read from the beginning."""

    alerts = ("SpillwayPartitionStopped",)
    staged = "transfer-requests is deleted and created again while orders arrive"
    workers = ORDERS
    flow = "buffer"

    def fail(self, stage: Stage) -> None:
        stage.first_order()
        with wire(stage) as topics:
            topics.delete(REQUESTS)
            topics.create(REQUESTS, 12)

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.living["ingest_events"].stop()
        stage.manage("ingest_events", "--accept-reset", "--once")
        stage.start_again("ingest_events")
        stage.manage(
            "dead_letters", "resolve", "--source", REQUESTS, "--reason", "the topic was created again on purpose"
        )


class BatchParked(Drill):
    """The topic is corrected; the same batch leaves."""

    alerts = ("SpillwayBatchParked",)
    staged = "max.message.bytes of transfer-batches is set to 300: no batch fits any more"
    workers = ORDERS
    flow = "buffer"
    settings = {"BUFFER_IDLE_SECONDS": "2", "BUFFER_CAP_SECONDS": "4"}

    def fail(self, stage: Stage) -> None:
        wait_for(lambda: stage.living["flush_buffer"].count("publish_batches_total"), 120, "the first batch")
        with wire(stage) as topics:
            topics.configure(BATCHES, **{"max.message.bytes": "300"})

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.manage("dead_letters", "list", "--source", REQUESTS)
        with wire(stage) as topics:
            topics.configure(BATCHES, **{"max.message.bytes": "1048588"})
        stage.say("max.message.bytes is what it was")
        stage.manage("dead_letters", "requeue", "--source", REQUESTS, "--reason", "the topic takes them now")


class WithoutFlusher(Drill):
    """The only flusher is killed, and started again."""

    workers = ORDERS
    flow = "buffer"

    def fail(self, stage: Stage) -> None:
        stage.first_order()
        stage.living["flush_buffer"].kill()

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.start_again("flush_buffer")


class FlusherKilled(WithoutFlusher, AgedRows):
    """Started again it cuts at once what has waited too long."""

    alerts = ("SpillwayOldestPending",)
    staged = "the only flush_buffer is killed, and orders have waited for 40 minutes (their buckets are aged)"
    settings = {"BUFFER_IDLE_SECONDS": "2", "BUFFER_CAP_SECONDS": "4"}

    def fail(self, stage: Stage) -> None:
        super().fail(stage)
        url = stage.environment["DATABASE_URL"]
        waiting = "SELECT 1 FROM buffer_bucket WHERE first_arrival IS NOT NULL"
        wait_for(lambda: databases.rows(url, waiting), 60, "an order that waits", 1)
        databases.run(url, AGE_BUCKETS)


class BufferFull(WithoutFlusher):
    """Reading pauses at the mark, and goes on when a flusher has made room."""

    alerts = ("SpillwayBufferFull",)
    staged = "a million orders arrive, and no flusher runs"

    def fail(self, stage: Stage) -> None:
        super().fail(stage)
        with wire(stage) as topics:
            for start in range(0, MANY, AT_ONCE):
                topics.produce([order(number) for number in range(start, start + AT_ONCE)])


def order(number: int) -> Sample:
    location = f"WH-{number % 500}"
    message = {"order_id": f"MANY-{number}", "location_id": location, "ordered_at": datetime.now(UTC).isoformat(),
               "items": [{"sku": "SKU-0001", "quantity": 3}]}  # fmt: skip
    return Sample(location, message["order_id"], 0, json.dumps(message).encode())


def wire(stage: Stage) -> closing[Wire]:
    return closing(Wire(stage.environment["KAFKA_BOOTSTRAP_SERVERS"], stage.environment["KAFKA_TOPIC_PREFIX"]))
