"""The Debezium JDBC sink on the topic that ingestion reads, into an equal but plain table."""

from __future__ import annotations

import os
import time
from urllib.parse import urlsplit

from django.db import connection

from buffer.streams import chosen
from config.kafka import topic_name
from tests.bench import databases
from tests.bench.events import forget
from tests.services.connect import ask

NAME = "bench-sink"
PATIENCE = 180.0
TABLES = {
    "postgresql": (
        "CREATE TABLE bench_peer (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
        "order_id varchar(200) NOT NULL UNIQUE, payload text NOT NULL, "
        "status varchar(10) NOT NULL DEFAULT 'pending', "
        "location_id varchar(200) GENERATED ALWAYS AS (substr(order_id, 1, 3)) STORED, "
        "stored_at timestamptz NOT NULL DEFAULT clock_timestamp())",
        "CREATE INDEX bench_peer_open ON bench_peer (location_id, id) WHERE status = 'pending'",
    ),
    "mysql": (
        "CREATE TABLE bench_peer (id bigint AUTO_INCREMENT PRIMARY KEY, "
        "order_id varchar(200) NOT NULL UNIQUE, payload longtext NOT NULL, "
        "status varchar(10) NOT NULL DEFAULT 'pending', "
        "location_id varchar(200) AS (substr(order_id, 1, 3)) STORED, "
        "stored_at datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)) CHARACTER SET utf8mb4",
        "CREATE INDEX bench_peer_open ON bench_peer (location_id, status, id)",
    ),
}
ADDRESSES = {"postgresql": "jdbc:postgresql://{}:{}{}", "mysql": "jdbc:mariadb://{}:{}{}"}
# What the drivers offer for batches; Debezium's documentation does not ask for it.
TUNED = {"postgresql": "?reWriteBatchedInserts=true", "mysql": "?useBulkStmts=true"}


def supported() -> bool:
    """Measured on PostgreSQL and MariaDB."""
    return connection.vendor == "postgresql" or connection.mysql_is_mariadb


def sink(servers: str, port: int, records: int, orders: int, size: int, *, tuned: bool) -> float:
    """Events per second of one task, by the database's clock: from the first to the last row stored."""
    databases.execute("DROP TABLE IF EXISTS bench_peer")
    for statement in TABLES[connection.vendor]:
        databases.execute(statement)
    forget(servers, [f"connect-{NAME}"])
    ask(port, "PUT", f"/connectors/{NAME}/config", configuration(size, tuned))
    try:
        wait_for(orders, port)
    finally:
        ask(port, "DELETE", f"/connectors/{NAME}")
        time.sleep(2)  # the worker leaves its group only now
    ((first, last),) = databases.rows("SELECT MIN(stored_at), MAX(stored_at) FROM bench_peer")
    return records / (last - first).total_seconds()


def wait_for(orders: int, port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while databases.rows("SELECT COUNT(*) FROM bench_peer") != [(orders,)]:
        tasks = ask(port, "GET", f"/connectors/{NAME}/status")["tasks"]
        failed = [task["trace"] for task in tasks if "trace" in task]
        if failed or time.monotonic() > deadline:
            raise RuntimeError(f"the sink did not finish: {failed[:1]}")
        time.sleep(0.5)


def configuration(size: int, tuned: bool) -> dict[str, str]:
    where = urlsplit(os.environ["DATABASE_URL"])
    address = ADDRESSES[connection.vendor].format(where.hostname, where.port, where.path)
    return {
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "tasks.max": "1",
        "topics": topic_name(chosen(None)[0].topic),
        "connection.url": address + (TUNED[connection.vendor] if tuned else ""),
        "connection.username": where.username or "",
        "connection.password": where.password or "",
        "insert.mode": "upsert",
        "primary.key.mode": "record_key",
        "primary.key.fields": "order_id",
        "schema.evolution": "none",
        "collection.name.format": "bench_peer",
        "batch.size": str(size),
        "use.reduction.buffer": "true",
        "consumer.override.max.poll.records": str(size),
        "consumer.override.auto.offset.reset": "earliest",
        # The message as it is becomes the column `payload`, the key `order_id`.
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "transforms": "key,payload",
        "transforms.key.type": "org.apache.kafka.connect.transforms.HoistField$Key",
        "transforms.key.field": "order_id",
        "transforms.payload.type": "org.apache.kafka.connect.transforms.HoistField$Value",
        "transforms.payload.field": "payload",
    }
