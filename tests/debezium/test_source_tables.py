"""Tables that are not ours, read by connectors with the settings that Debezium comes with, and with those we recommend."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import kafka
import pytest
from django.db import connection

from buffer.models import InventoryItem, InventoryLocation
from tests.buffer.ledger.conftest import MERCHANTS, VARIANTS, outcomes, record, write
from tests.crash.wire import wait_for
from tests.debezium.connector import PATIENCE, Connector, server

VARIANT = "source_variant"
BIG = 12345678901234567890
MERCHANT = "M" * 190
# Of the outbox's own connector: everything but how to reach the servers.
OURS = (
    "column.",
    "snapshot.",
    "transforms",
    "predicates",
    "skipped.",
    "tombstones.",
    "key.conv",
    "value.conv",
    "publi",
)
RECOMMENDED = {
    "decimal.handling.mode": "string",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "transforms": "unwrap",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.unwrap.delete.tombstone.handling.mode": "rewrite",
    "transforms.unwrap.add.fields": "op",
}
JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter"}


@pytest.fixture
def source(new_connector: Callable[[], Connector], transactional_db: None) -> Iterator[Connector]:
    """A table with numeric keys whose merchants are TOASTed, and a connector that does not read it yet."""
    own = new_connector()
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE {VARIANT} (id numeric(20) PRIMARY KEY, merchant_id varchar(200) NOT NULL, title text)"
        )
        if server() == "postgres":
            cursor.execute(f"ALTER TABLE {VARIANT} SET (toast_tuple_target = 128)")
            cursor.execute(f"ALTER TABLE {VARIANT} ALTER merchant_id SET STORAGE EXTERNAL")
    try:
        yield own
    finally:
        own.delete()
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE {VARIANT}")
            if server() == "postgres":
                cursor.execute(f"DROP PUBLICATION IF EXISTS {own.name}")


def start(connector: Connector, settings: dict[str, str]) -> None:
    plain = {name: value for name, value in connector.configuration().items() if not name.startswith(OURS)}
    schema = "public" if server() == "postgres" else connection.settings_dict["NAME"]
    own = {"table.include.list": f"{schema}.{VARIANT}"}
    if server() == "postgres":
        own |= {"publication.name": connector.name, "publication.autocreate.mode": "filtered"}
    connector.ask("PUT", "/config", {**plain, **own, **settings})
    connector.wait_until_streaming([])


def write_rows(rows: list[tuple[Any, ...]]) -> None:
    with connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {VARIANT} VALUES (%s, %s, %s)", rows)


def values(connector: Connector, count: int) -> list[bytes | None]:
    """The first `count` records of the table's topic."""
    schema = "public" if server() == "postgres" else connection.settings_dict["NAME"]
    topic = f"{connector.name}.{schema}.{VARIANT}"
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=connector.servers.split(","), enable_auto_commit=False, auto_offset_reset="earliest"
    )
    consumer.assign([kafka.TopicPartition(topic, 0)])
    found: list[bytes | None] = []

    def read() -> bool:
        found.extend(each.value for records in consumer.poll(timeout_ms=200).values() for each in records)
        return len(found) >= count

    try:
        wait_for(read, PATIENCE, f"{count} records of {topic}")
    finally:
        consumer.close()
    return found


def change_everything(connector: Connector, settings: dict[str, str], tombstones: int) -> list[bytes | None]:
    """A row of the snapshot whose title changes later, one that is deleted, one with a long number."""
    write_rows([(1, MERCHANT, "x" * 3000)])
    start(connector, settings)
    write_rows([(65_536, MERCHANT, "x" * 3000), (BIG, MERCHANT, "x" * 3000)])
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {VARIANT} SET title = 'new' WHERE id = 1")
        cursor.execute(f"DELETE FROM {VARIANT} WHERE id = 65536")
    return values(connector, 5 + tombstones)


@pytest.mark.parametrize(("settings_of", "tombstones"), [(JSON, 1), (RECOMMENDED, 0)], ids=["defaults", "recommended"])
def test_items_and_merchants_follow_the_rows(source, settings_of, tombstones):
    found = change_everything(source, settings_of, tombstones)
    if server() == "postgres":
        assert sum(b"__debezium_unavailable_value" in (value or b"") for value in found) == 1
    for value in found:
        write(record((VARIANTS, value)), record((MERCHANTS, value)))
    items = {item.pk: (item.merchant_id, item.active) for item in InventoryItem.objects.all()}
    assert items == {"1": (MERCHANT, True), "65536": (MERCHANT, False), str(BIG): (MERCHANT, True)}
    locations = dict(InventoryLocation.objects.values_list("merchant_id", "active"))
    assert locations == {"1": True, "65536": False, str(BIG): True}


def test_numbers_without_their_schema_are_letters_and_no_items(source):
    found = change_everything(source, {**JSON, "value.converter.schemas.enable": "false"}, 1)
    ids = [(json.loads(value)["after"] or json.loads(value)["before"])["id"] for value in found if value]
    assert "AQ==" in ids
    written = write(*[record((VARIANTS, value)) for value in found if value and b'"AQ=="' in value])
    assert outcomes(written) == {"applied": 0, "duplicate": 0, "skipped": 0, "parked": 2}
    assert not InventoryItem.objects.exists()
