"""A service with an outbox of its own, and Debezium's outbox event router between it and Spillway."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from typing import Any

from django.db import connection, transaction

from tests.debezium.connector import FILES, Connector, own_names, seen_from_connect, server

TABLE = "outbox"
TOPIC, PARTITIONS = "messages-in", 3


class Router(Connector):
    """The connector of deploy/debezium/service on a table of the test database."""

    def __init__(self, url: str, servers: str) -> None:
        super().__init__(url, servers)
        self.wire.create(TOPIC, PARTITIONS, **{"message.timestamp.type": "LogAppendTime"})
        make_table(self.name)

    def start(self, **overrides: str) -> None:
        before = self.positions()
        self.ask("PUT", "/config", {**service_configuration(self), **overrides})
        self.ask("PUT", "/resume")
        self.wait_until_streaming(before)

    def delete(self) -> None:
        super().delete()
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {TABLE}")
            if server() == "postgres":
                cursor.execute(f"DROP PUBLICATION IF EXISTS {self.name}")


def statements() -> Iterator[str]:
    """The table and the publication of the operators' file; accounts and grants there want a superuser."""
    text = (FILES / "service" / f"{'postgresql' if server() == 'postgres' else 'mysql'}.sql").read_text()
    code = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    yield from (part.strip() for part in code.split(";") if re.match(r"\s*CREATE (TABLE|PUBLICATION)", part))


def make_table(publication: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {TABLE}")
        for statement in statements():
            cursor.execute(statement.replace("billing_outbox", publication))


def service_configuration(router: Router) -> dict[str, str]:
    """The operators' file with the placeholders filled, and names that two tests may not share."""
    where = connection.settings_dict
    host, port = seen_from_connect(server(), where["HOST"] or "127.0.0.1", where["PORT"])
    broker, broker_port = seen_from_connect("kafka", *router.servers.split(",")[0].rsplit(":", 1))
    values = {
        "SERVICE_DB_HOST": host, "SERVICE_DB_PORT": str(port), "SERVICE_DB_NAME": where["NAME"],
        "SERVICE_DB_USER": where["USER"], "SERVICE_DB_PASSWORD": where["PASSWORD"],
        "SERVICE_DB_SERVER_ID": str(int(router.name[-8:], 16) % 2**31 + 1000),
        "KAFKA_BOOTSTRAP_SERVERS": f"{broker}:{broker_port}", "KAFKA_TOPIC_PREFIX": router.prefix,
    }  # fmt: skip
    text = (FILES / "service" / f"{'postgresql' if server() == 'postgres' else 'mysql'}.json").read_text()
    if server() != "postgres":
        text = text.replace('"billing.outbox"', f'"{where["NAME"]}.outbox"')
        text = text.replace('"database.include.list": "billing"', f'"database.include.list": "{where["NAME"]}"')
    if server() == "mariadb":
        text = text.replace("connector.mysql.MySqlConnector", "connector.mariadb.MariaDbConnector")
    found = json.loads(re.sub(r"\$\{env:(\w+)\}", lambda match: values[match[1]], text))
    names = own_names(found, router)
    if "publication.name" in found:
        names["publication.name"] = router.name
    return {**found, **names}


def promise(number: int, to: str = "", **more: Any) -> dict[str, Any]:
    """A row of the service's outbox."""
    payload = {
        "to": to or f"ada{number}@example.com",
        "subject": f"Invoice {number}",
        "text": f"Number {number}: ä€𝄞.\n",
    }
    about = {"channel": "email", "event_type": "invoice.issued", "aggregate": f"invoice:{number}"}
    return {"id": str(uuid.uuid4()), **about, "payload": json.dumps(payload), "expires_at": None, **more}


def insert(rows: list[dict[str, Any]]) -> None:
    """In one transaction, and gone again at once: only the log says what was promised."""
    with transaction.atomic(), connection.cursor() as cursor:
        names = list(rows[0])
        marks = ", ".join(["%s"] * len(names))
        cursor.executemany(
            f"INSERT INTO {TABLE} ({', '.join(names)}) VALUES ({marks})", [tuple(row.values()) for row in rows]
        )
        cursor.execute(f"DELETE FROM {TABLE}")
