"""Drills about records that no worker can use, and tables without room for tomorrow."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta

from tests.crash import databases
from tests.crash.traffic import Sample
from tests.crash.wire import Wire
from tests.drills.stage import Drill, Plan, Stage
from tests.drills.workers import ORDERS

TABLE = "outbox_outboxmessage"
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

    alert = "SpillwayDeadLettersOpen"
    staged = "60 records of transfer-requests that are no orders"
    workers = ORDERS
    flow = "buffer"

    def fail(self, stage: Stage) -> None:
        prefix = stage.environment["KAFKA_TOPIC_PREFIX"]
        with closing(Wire(stage.environment["KAFKA_BOOTSTRAP_SERVERS"], prefix)) as wire:
            wire.produce([Sample(f"WH-{n % 7}", "", 0, POISON[n % 3]) for n in range(60)])

    def mend(self, stage: Stage) -> None:
        stage.manage("dead_letters", "list")
        letters = stage.platform.manage("dead_letters", "list", "--status", "open", "--json").stdout.splitlines()
        for group in sorted({json.loads(letter)["group"] for letter in letters}):
            stage.manage("dead_letters", "resolve", "--group", str(group), "--reason", "the producer sent them again")


class RunwayShort(Drill):
    """Nobody has rotated for a month: the next days have no partition until somebody does."""

    alert = "SpillwayPartitionRunwayShort"
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
