#!/usr/bin/env python3
"""A consumer of transfer-batches that counts every batch once; `--help` lists its options.

Needs kafka-python and nothing of Spillway. Copy it, replace `request_stock` by your own effect, and keep the
order of things: batch id and effect in one transaction, the offset after the commit.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

from kafka import KafkaConsumer, OffsetAndMetadata

TABLES = [
    "CREATE TABLE IF NOT EXISTS processed_batch (batch_id CHAR(36) PRIMARY KEY, "
    "processed_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP)",
    "CREATE TABLE IF NOT EXISTS stock_request (location_id VARCHAR(200), sku VARCHAR(200), "
    "quantity BIGINT NOT NULL, PRIMARY KEY (location_id, sku))",
]
ADD = "UPDATE stock_request SET quantity = quantity + {0} WHERE location_id = {0} AND sku = {0}"
START = "INSERT INTO stock_request (quantity, location_id, sku) VALUES ({0}, {0}, {0})"


class Inbox:
    """A database in which a batch takes effect at most once.

    `connection` is any DB-API connection outside autocommit, `mark` its parameter: `?` for sqlite3, `%s` for
    psycopg and mysqlclient.
    """

    def __init__(self, connection: Any, mark: str = "?") -> None:
        self.connection = connection
        self.mark = mark

    def create_tables(self) -> None:
        for sql in TABLES:
            self._execute(sql)
        self.connection.commit()

    def apply(self, message: dict[str, Any]) -> bool:
        """Remember the batch id and do what the batch asks for, both or neither; False for a copy."""
        try:
            if not self._is_new(message["batch_id"]):
                self.connection.rollback()
                return False
            self.request_stock(message)
            self.connection.commit()
        except BaseException:
            self.connection.rollback()
            raise
        return True

    def request_stock(self, message: dict[str, Any]) -> None:
        """Your effect. A supplement carries signed quantities, so adding is right for both kinds."""
        for item in message["items"]:
            row = (item["quantity"], message["location_id"], item["sku"])
            if not self._execute(ADD, *row):
                self._execute(START, *row)

    def _is_new(self, batch_id: str) -> bool:
        # No SELECT first: of two consumers with the same copy, one waits here for the other's commit.
        try:
            self._execute("INSERT INTO processed_batch (batch_id) VALUES ({0})", batch_id)
        except self.connection.IntegrityError:
            return False
        return True

    def _execute(self, sql: str, *parameters: object) -> int:
        with closing(self.connection.cursor()) as cursor:
            cursor.execute(sql.format(self.mark), parameters)
            return int(cursor.rowcount)


def batch_in(value: bytes | None) -> dict[str, object] | None:
    """The batch in a record; None for what somebody else wrote into the topic."""
    try:
        message = json.loads(value or b"null")
    except ValueError:
        return None
    return message if isinstance(message, dict) and message.keys() >= {"batch_id", "location_id", "items"} else None


def consume(consumer: Any, inbox: Inbox, *, once: bool = False, say: Callable[[str], None] = print) -> None:
    """Apply what is polled; the offset is committed only after the database has committed.

    `once` ends with the first poll that brings nothing after one that brought something.
    """
    seen = False
    while True:
        polled = consumer.poll(timeout_ms=1000)
        for partition, records in polled.items():
            for record in records:
                if (message := batch_in(record.value)) is None:
                    say(f"{record.partition}/{record.offset} skipped, no batch")
                    continue
                verdict = "applied" if inbox.apply(message) else "skipped, a copy"
                say(f"{message['location_id']} {message['batch_id']} {verdict}")
            consumer.commit({partition: OffsetAndMetadata(records[-1].offset + 1, "", -1)})
        if once and seen and not polled:
            return
        seen = seen or bool(polled)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Count every batch of transfer-batches once.")
    parser.add_argument("--servers", default="127.0.0.1:9092", help="Kafka, host:port (default %(default)s)")
    parser.add_argument("--topic", default="transfer-batches")
    parser.add_argument("--group", default="batch-example")
    parser.add_argument("--database", default="batches.sqlite3", help="an SQLite file (default %(default)s)")
    parser.add_argument("--api-version", default="", help="2.3 for Spillway's embedded broker")
    parser.add_argument("--once", action="store_true", help="end when nothing more comes")
    options = parser.parse_args(arguments)
    version = tuple(int(part) for part in options.api_version.split(".")) if options.api_version else None
    consumer = KafkaConsumer(
        options.topic,
        bootstrap_servers=options.servers.split(","), group_id=options.group, api_version=version,
        enable_auto_commit=False, auto_offset_reset="earliest", isolation_level="read_committed",
    )  # fmt: skip
    with closing(consumer), closing(sqlite3.connect(options.database)) as connection:
        inbox = Inbox(connection)
        inbox.create_tables()
        consume(consumer, inbox, once=options.once)


if __name__ == "__main__":
    main()
