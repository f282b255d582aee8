"""A service with an outbox of its own, and Debezium's outbox event router between it and Spillway."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from typing import Any

from django.db import connection, transaction

from tests.debezium.connector import FILES, Connector, filled, server

TABLE = "outbox"
TOPIC, PARTITIONS = "messages-in", 3


class Router(Connector):
    """The connector of deploy/debezium/service on a table of the test database."""

    def __init__(self, url: str, servers: str) -> None:
        super().__init__(url, servers)
        self.wire.create(TOPIC, PARTITIONS, **{"message.timestamp.type": "LogAppendTime"})
        make_table(self.name)

    @property
    def publication(self) -> str:
        return self.name

    def configuration(self) -> dict[str, str]:
        return filled(service_file(connection.settings_dict["NAME"]), "SERVICE", self)

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


def service_file(name: str) -> str:
    """What the operators of a service have, whose database is called so."""
    text = (FILES / "service" / f"{'postgresql' if server() == 'postgres' else 'mysql'}.json").read_text()
    if server() != "postgres":
        text = text.replace('"billing.outbox"', f'"{name}.outbox"')
        text = text.replace('"database.include.list": "billing"', f'"database.include.list": "{name}"')
    if server() == "mariadb":
        text = text.replace("connector.mysql.MySqlConnector", "connector.mariadb.MariaDbConnector")
    return text


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
