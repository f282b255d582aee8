"""The files operators register: nothing secret, nothing too much, and no difference that nobody wanted."""

from __future__ import annotations

import json
import re

import pytest

from outbox.intake.envelope import READABLE
from tests.debezium.connector import FILES, template

NAMES = ("postgres", "mariadb", "mysql")


@pytest.mark.parametrize("name", NAMES)
def test_only_inserts_and_three_columns_are_captured(name):
    found = json.loads(template(name))
    assert found["skipped.operations"] == "u,d,t"
    assert found["column.include.list"].endswith(".outbox_outboxmessage.(id|event_type|created_at)")
    assert found["tombstones.on.delete"] == found["value.converter.schemas.enable"] == "false"
    assert found["transforms.route.replacement"] == "${env:KAFKA_TOPIC_PREFIX}outbox.outbox_message"


@pytest.mark.parametrize("name", NAMES)
def test_who_and_where_comes_from_the_environment(name):
    found = json.loads(template(name))
    for word in ("hostname", "port", "user", "password"):
        assert re.fullmatch(r"\$\{env:OUTBOX_DB_\w+\}", found[f"database.{word}"])


def test_every_placeholder_is_explained():
    explained = (FILES / "README.md").read_text()
    used = {word for name in NAMES for word in re.findall(r"\$\{env:(\w+)\}", template(name))}
    assert not [word for word in used if f"`{word}`" not in explained]


def test_mariadb_and_mysql_differ_in_the_connector_alone():
    mariadb, mysql = (json.loads(template(name)) for name in ("mariadb", "mysql"))
    assert {key for key in mariadb | mysql if mariadb.get(key) != mysql.get(key)} == {"connector.class"}


SERVICES = ("postgresql", "mysql")


@pytest.mark.parametrize("name", SERVICES)
def test_the_router_makes_the_envelope(name):
    found = json.loads((FILES / "service" / f"{name}.json").read_text())
    assert found["transforms.outbox.type"] == "io.debezium.transforms.outbox.EventRouter"
    assert found["transforms.outbox.route.topic.replacement"] == "${env:KAFKA_TOPIC_PREFIX}messages-in"
    columns = re.findall(r"^    (\w+) ", (FILES / "service" / f"{name}.sql").read_text(), re.MULTILINE)
    placed = [entry.split(":") for entry in found["transforms.outbox.table.fields.additional.placement"].split(",")]
    assert {entry[0] for entry in placed} | {"payload"} == set(columns)
    assert {entry[-1] if len(entry) > 2 else entry[0] for entry in placed} == set(READABLE)
    text = (FILES / "README.md").read_text()
    used = re.findall(r"\$\{env:(\w+)\}", json.dumps(found))
    assert not [word for word in used if f"`{word}`" not in text]


def test_the_routers_of_both_differ_in_nothing():
    first, second = (json.loads((FILES / "service" / f"{name}.json").read_text()) for name in SERVICES)
    routed = ("transforms", "predicates", "key.", "value.", "topic.")
    assert {k: v for k, v in first.items() if k.startswith(routed)} == {
        k: v for k, v in second.items() if k.startswith(routed)
    }
