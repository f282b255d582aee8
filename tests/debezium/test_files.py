"""The files operators register: nothing secret, nothing too much, and no difference that nobody wanted."""

from __future__ import annotations

import json
import re

import pytest

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
