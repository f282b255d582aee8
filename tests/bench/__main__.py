"""python -m tests.bench [--quick] [--only PARTS] [--database URL] [--peers] [--write FILE]"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bench import databases, events, figures
from tests.bench.aggregator import movements
from tests.bench.aggregator.connect import Sink
from tests.bench.figures import Table
from tests.bench.leg import PARTS, Plan, write_plan
from tests.services import supervisor

DATABASES = ("postgres", "mariadb", "mysql")
APART = ("scale",)  # its own command: `make scale`
BROKER = "TEST_KAFKA_SERVERS"
TABLES = {
    "ingest": Table(
        "Ingestion from Kafka, events/s",
        "Goals: ≥ 0.7 of the bare statement; ≥ 1.4 (PostgreSQL) and ≥ 1.8 (MariaDB) times the Debezium JDBC "
        "sink at the same batch size; < 300 MB.",
    ),
    "formats": Table(
        "Ingestion of records in another format, events/s",
        "One process, batches of 2 000, in turns. Goals: Avro ≥ 15 000, Protobuf ≥ 12 000.",
    ),
    "due": Table("Finding ten due buckets", "Goal: < 1 ms at a million pending events, and the same at 10 000."),
    "flush": Table(
        "Flushing into Kafka", "Goals: ≥ 20 000 events/s in full buckets, ≥ 2 000 buckets/s at five events each."
    ),
    "ledger": Table(
        "Stock movements from Kafka", "Goal: ≥ 0.7 of bare record-and-adjust, with a million rows in the ledger."
    ),
    "lookup": Table("Finding what is known", "Goal: flat from 100 000 to ten million rows."),
    "outbox": Table("Draining the outbox, messages/s", "A channel that takes anything, beside bare claim and mark."),
    "full": Table("Draining among millions of sent messages", "Goal: as fast as from an empty table."),
    "promises": Table("Promising a mail", "167 a second: from commit to send, and what the order's write costs."),
    "capture": Table(
        "From commit to mail by Debezium", "167 messages/s, two listeners and a relay. Goal: p99 of the whole ≤ 400 ms."
    ),
    "live": Table(
        "Notifications that go live", "Goals: ≥ 20 000 messages/s with 1 000 active customers, ≥ 12 000 with 100 000."
    ),
    "delay": Table(
        "Delay of notifications that go live",
        "Goals at 1 000 messages/s: p50 ≤ 30 ms, p99 ≤ 100 ms; rows written a second ≤ 110, as at 10 messages/s.",
    ),
    "drain": Table(
        "Draining 10 000 customers at their rate",
        "Goals: ≥ 0.95 of what the rates allow, and never more than a burst (here 1) above it.",
    ),
    "fairness": Table(
        "Customers under one output rate",
        "300 customers, 60 % of them with one process of three; 1 000/s of all. Goals: Jain's index > 0.99 with one process, "
        "> 0.95 with three; never above the limit but for a burst.",
    ),
    "noisy": Table(
        "1 000 quiet customers beside one at 100 times its rate", "Added delay of the quiet ones. Goal: p99 ≤ 150 ms."
    ),
    "pages": Table(
        "Pages of the console over a million dead letters",
        "Goal: < 100 ms each, a constant number of queries; home at most 80, the others at most 25.",
    ),
    "batches": Table(
        "Replay batches of 100 000 letters",
        "One worker. Goals: the request < 0.3 s, the preview < 10 s; taken back ≥ 2 000/s on PostgreSQL and MariaDB, ≥ 1 000/s "
        "on MySQL; pause and cancel, pressed at full speed, hold within 1 s.",
    ),
    "line": Table(
        "Mails of now beside a replay of 20 000 mails at 50/s",
        "One relay, one replay worker. Goal: a fresh order's mail leaves within 15 s.",
    ),
    "seals": Table(
        "Operator actions of eight writers", "In turns. Goal: ≥ 0.8 of what they record while nobody seals."
    ),
    "restore": Table("Restoring 100 000 lanes after a million updates", "Goal: < 2 s."),
    "restart": Table(
        "A named throttler killed and started again",
        "10 000 lanes, two processes. Goals: each partition sends ≤ 1 s after the process says that it starts; those of the "
        "other process go on; a partition that is added stops both within 60 s.",
    ),
    "overflow": Table(
        "The overflow table",
        "Goals: ≥ 0.7 of the bare statement; a page < 2 ms and 100 lanes < 50 ms, flat from 10 000 to a million.",
    ),
    "bunches": Table(
        "Bunches by HTTP",
        "Goal: 2 000 notifications in bunches of 100 accepted in < 2 s by one web server of four threads.",
    ),
    "overhead": Table(
        "What logs and traces cost",
        "Processor time of the worker beyond its start; INFO as JSON into a file; OTLP to a collector that takes anything. Goal: logs "
        "and traces < 10 % each of ingestion and of mails by SMTP.",
    ),
    "scale": Table(
        "More processes, each with the same share of a core",
        "Goals at 8: ≥ 6 times one for relay, flush, ingest and throttler on PostgreSQL (mails ≥ 7), ≥ 5 for flush and ingest on MariaDB.",
    ),
    "waiting": Table("Pages of the admin over the overflow table", "Goal: < 100 ms of server time."),
}


def main() -> int:
    arguments = parse()
    servers = given_servers(arguments.database)
    running = supervisor.addresses(["kafka"])
    broker = os.environ.get(BROKER) or running.get(BROKER, "")
    if not servers or not broker:
        print("nothing to measure on: start the servers with `make services`", file=sys.stderr)
        return 1
    found: list[dict[str, Any]] = []
    for result in run(arguments, servers, broker):
        found.append(result)
        if arguments.write:  # after each database: an interrupted bench keeps what it has
            arguments.write.write_text(report(found) + "\n", encoding="utf-8")
    print(f"\n{report(found)}")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="a fifth of the work")
    usual = ",".join(part for part in PARTS if part not in APART)
    add("--only", default=usual, metavar="PARTS", help=f"of {','.join(PARTS)}; without it all but {', '.join(APART)}")
    add("--database", action="append", metavar="URL", help="instead of the running test servers")
    add("--peers", action="store_true", help="beside the Debezium JDBC sink (PEERS=1 says the same)")
    add("--records", type=int, default=300_000, metavar="N", help="events to ingest (300 000)")
    add("--repeat", type=int, default=3, metavar="N", help="runs of which the median counts (3)")
    add("--workers", default="", metavar="NAMES", help="with --only scale: of relay,mails,flush,ingest,throttler")
    add("--write", type=Path, metavar="FILE", help="write the tables into this file, too")
    arguments = parser.parse_args()
    arguments.only = arguments.only.split(",")
    arguments.peers = arguments.peers or os.environ.get("PEERS") == "1"
    if unknown := set(arguments.only) - PARTS.keys():
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    return arguments


def given_servers(urls: list[str] | None) -> list[str]:
    """Named on the command line, else by the environment, else those `make services` runs."""
    if urls:
        return urls
    names = [f"TEST_{name.upper()}_URL" for name in DATABASES]
    running = supervisor.addresses(DATABASES)
    return [url for name in names if (url := os.environ.get(name) or running.get(name))]


def run(arguments: argparse.Namespace, servers: list[str], broker: str) -> Iterator[dict[str, Any]]:
    prefix = f"bench-{os.getpid()}-"
    records = arguments.records // (5 if arguments.quick else 1)
    try:
        orders, moves = 0, records // 3
        if {"ingest", "flush", "overhead"} & set(arguments.only):
            orders = events.produce(broker, f"{prefix}transfer-requests", records)
            events.create_topic(broker, f"{prefix}transfer-batches")
        if "ledger" in arguments.only:
            movements.produce(broker, prefix, moves)
        with peer(arguments.peers, broker) as port:
            plan = Plan(
                broker,
                arguments.only,
                records,
                orders,
                moves,
                arguments.quick,
                arguments.repeat,
                port,
                arguments.workers,
            )
            for url in servers:
                yield leg(url, prefix, plan)
    finally:
        events.delete(broker, prefix)


@contextmanager
def peer(wanted: bool, broker: str) -> Iterator[int]:
    """The port of a Kafka Connect worker for as long as the bench runs; 0 without one."""
    if not wanted:
        yield 0
        return
    worker = Sink(supervisor.root())
    worker.servers = broker
    worker.start()
    try:
        yield worker.port
    finally:
        worker.stop()
        worker.wipe()


def leg(url: str, prefix: str, plan: Plan) -> dict[str, Any]:
    mine = f"bench_{os.getpid()}"
    with databases.fresh_database(url, mine) as address, tempfile.TemporaryDirectory() as directory:
        files = [Path(directory) / name for name in ("plan", "result")]
        write_plan(files[0], plan)
        print(f"=== {address.partition(':')[0]} {address.rpartition('@')[2]}", flush=True)
        environment = {
            "DATABASE_URL": address, "KAFKA_BOOTSTRAP_SERVERS": plan.servers, "KAFKA_TOPIC_PREFIX": prefix,
            "DJANGO_SETTINGS_MODULE": "config.settings", "LOG_LEVEL": "WARNING", "LOG_FORMAT": "console",
        }  # fmt: skip
        command = [sys.executable, "-m", "tests.bench.leg", *map(str, files)]
        subprocess.run(command, env={**os.environ, **environment}, check=True)
        return json.loads(files[1].read_text())


def report(found: list[dict[str, Any]]) -> str:
    tables = [
        replace(table, rows=[row for result in found for row in result["rows"].get(part, ())]).markdown()
        for part, table in TABLES.items()
    ]
    return "\n".join([figures.machine(result["server"] for result in found), "", *filter(None, tables)])


if __name__ == "__main__":
    sys.exit(main())
