"""The table of spillway-client, read by the connector that its README describes."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection, transaction

from config.kafka import Replayed
from outbox.intake.envelope import read
from tests.client.conftest import promise
from tests.client.conftest import promises as promises  # a fixture
from tests.crash.wire import Output, wait_for
from tests.debezium.connector import Connector, filled, server
from tests.debezium.router import PARTITIONS, TOPIC, Router, service_file
from tests.tree import ROOT
from tests.tree import read as text_of

README = text_of(ROOT / "client" / "README.md")


class ClientConnector(Router):
    """The connector of a service, changed as the README says."""

    def __init__(self, url: str, servers: str) -> None:
        Connector.__init__(self, url, servers)
        self.wire.create(TOPIC, PARTITIONS)
        if server() == "postgres":
            (publication,) = re.findall(r"CREATE PUBLICATION [^;]*;", README)
            self.execute(publication.replace("billing_outbox", self.name))

    def configuration(self) -> dict[str, str]:
        (script,) = re.findall(r"sed '([^']*)'", README)
        changed = subprocess.run(
            ["sed", script],
            input=service_file(connection.settings_dict["NAME"]),
            capture_output=True,
            text=True,
            check=True,
        )
        return filled(changed.stdout, "SERVICE", self)

    def delete(self) -> None:
        Connector.delete(self)
        if server() == "postgres":
            self.execute(f"DROP PUBLICATION IF EXISTS {self.name}")

    def execute(self, statement: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)


@pytest.fixture
def connector(worker: tuple[str, str], promises: Any, settings: Any) -> Iterator[ClientConnector]:
    settings.SPILLWAY_CLIENT = {"DEBEZIUM": True, "PRODUCER": "billing"}
    own = ClientConnector(*worker)
    try:
        own.start()
        yield own
    finally:
        own.delete()


def test_what_is_committed_arrives_as_spillway_reads_it(connector, promises):
    moment = datetime(2031, 1, 1, 12, 30, 15, 250_000, UTC)
    payload = {"to": "ada@example.com", "subject": "ä€𝄞", "text": 'a "b" \\ {}\n', "total": 1.10}
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        promise(0)
        raise ZeroDivisionError
    promise(1, payload=payload)
    promise(2, expires_at=moment)
    output = Output(connector.wire, TOPIC)
    try:
        wait_for(lambda: len(output.read()) >= 2, 60, "two records")
    finally:
        output.close()
    said = {}
    for one in output.records:
        assert ("producer", b"billing") in one.headers
        at = (one.partition, one.offset, int(time.time() * 1000))
        found = read(Replayed(TOPIC, *at, one.key, one.value, one.headers), TOPIC)
        said[found.key] = found
    assert sorted(said) == ["messages-in/1/issued", "messages-in/2/issued"]
    first, second = said["messages-in/1/issued"], said["messages-in/2/issued"]
    assert (first.channel, first.event_type, first.aggregate) == ("email", "invoice.issued", "invoice:1")
    assert (first.given, first.expires_at, second.expires_at) == (payload, None, moment)
    assert set(promises.values_list("state", flat=True)) == {"captured"}
