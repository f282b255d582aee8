"""The Debezium JDBC sink on the topic that ingestion reads, into an equal but plain table."""

from __future__ import annotations

import json
import os
import time
from urllib.parse import urlsplit

from django.db import connection

from buffer.streams import chosen
from config.kafka import topic_name
from tests.bench import databases
from tests.bench.connect import ask
from tests.bench.events import forget

NAME = "bench-sink"
PATIENCE = 180.0
TABLES = {
    "postgresql": (
        "CREATE TABLE bench_peer (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, month int NOT NULL, "
        "order_id varchar(200) NOT NULL, location_id varchar(200) NOT NULL, details text NOT NULL, "
        "status varchar(10) NOT NULL DEFAULT 'pending', stored_at timestamptz NOT NULL DEFAULT clock_timestamp(), "
        "UNIQUE (month, order_id, location_id))",
        "CREATE INDEX bench_peer_open ON bench_peer (location_id, id) WHERE status = 'pending'",
    ),
    "mysql": (
        "CREATE TABLE bench_peer (id bigint AUTO_INCREMENT PRIMARY KEY, month int NOT NULL, "
        "order_id varchar(200) NOT NULL, location_id varchar(200) NOT NULL, details text NOT NULL, "
        "status varchar(10) NOT NULL DEFAULT 'pending', stored_at datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), "
        "UNIQUE (month, order_id, location_id)) CHARACTER SET utf8mb4",
        "CREATE INDEX bench_peer_open ON bench_peer (location_id, status, id)",
    ),
}
DRIVERS = {
    "postgresql": "jdbc:postgresql://{}:{}{}?reWriteBatchedInserts=true",
    "mysql": "jdbc:mariadb://{}:{}{}?useBulkStmts=true",
}
# What stands in the topic is plain JSON: the sink is told the schema, and skips what it does not name.
SCHEMA = {
    "type": "struct",
    "fields": [
        {"field": "month", "type": "int32", "optional": False},
        *({"field": name, "type": "string", "optional": False} for name in ("order_id", "location_id", "details")),
    ],
}


def supported() -> bool:
    """Measured on PostgreSQL and MariaDB."""
    return connection.vendor == "postgresql" or connection.mysql_is_mariadb


def sink(servers: str, port: int, records: int, orders: int, size: int) -> float:
    """Events per second of one task, by the database's clock: from the first to the last row stored."""
    databases.execute("DROP TABLE IF EXISTS bench_peer")
    for statement in TABLES[connection.vendor]:
        databases.execute(statement)
    forget(servers, [f"connect-{NAME}"])
    ask(port, "PUT", f"/connectors/{NAME}/config", configuration(size))
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
        failed = [task["trace"] for task in ask(port, "GET", f"/connectors/{NAME}/status")["tasks"] if "trace" in task]
        if failed or time.monotonic() > deadline:
            raise RuntimeError(f"the sink did not finish: {failed[:1]}")
        time.sleep(0.5)


def configuration(size: int) -> dict[str, str]:
    where = urlsplit(os.environ["DATABASE_URL"])
    return {
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "tasks.max": "1",
        "topics": topic_name(chosen(None)[0].topic),
        "connection.url": DRIVERS[connection.vendor].format(where.hostname, where.port, where.path),
        "connection.username": where.username or "",
        "connection.password": where.password or "",
        "insert.mode": "upsert",
        "primary.key.mode": "record_value",
        "primary.key.fields": "month,order_id,location_id",
        "schema.evolution": "none",
        "collection.name.format": "bench_peer",
        "batch.size": str(size),
        "use.reduction.buffer": "true",
        "consumer.override.max.poll.records": str(size),
        "consumer.override.auto.offset.reset": "earliest",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
        "value.converter.schema.content": json.dumps(SCHEMA),
    }
