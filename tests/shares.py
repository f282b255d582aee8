"""What one leg of `make test` leaves to another, where both run; alone, a leg runs every test.

Each test meets both brokers and every database that answers differently: SQLite with the embedded broker as in the demo,
servers with the real one. MariaDB and MySQL share driver, dialect and Django's backend: one has the processes, the other
the pages. Throttlers as processes keep their state in Kafka: MySQL beside them is enough. What a page masks is no matter
of the database: SQLite and one server are enough. So divided, the legs take about the same time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import pytest

DATABASE = {"db", "transactional_db"}
# Whose tests, where they touch no database, say the same beside each.
BLIND = ("tests/config/demo/test_embedded_kafka", "tests/config/kafka/", "tests/docs/", "tests/throttler/")
THROTTLERS = "tests/processes/throttler/"
# They wait for sessions and time-outs of Kafka; no database has a part in it.
NO_PART = tuple(f"{THROTTLERS}test_{name}" for name in ("sleepers", "throttler_cuts", "throttler_zombies"))
PAGES = re.compile(r"/admin/|^tests/outbox/scenarios/")
MASKS = re.compile(r"^tests/outbox/audit_log/test_(matrix|reveal|lookups|planted)")


def left_by(leg: str, chosen: Sequence[str], kafka: bool) -> set[str]:
    """What the leg of a database leaves to others when all the `chosen` are tested, and whether on a real broker, too."""
    servers = [name for name in chosen if name != "sqlite"]
    left = set()
    if leg != ("mariadb" if "mariadb" in chosen else chosen[-1]):
        left.add("blind")
    if leg == "sqlite" and servers and kafka:
        left.add("kafka")
    if leg in servers and "sqlite" in chosen and kafka:
        left.add("embedded")
    if leg == "mysql" and "mariadb" in chosen:
        left.add("processes")
    if leg == "mariadb" and "mysql" in chosen:
        left.add("pages")
    if leg in servers[1:]:
        left.add("masks")
    if leg in {"postgres", "mariadb"} and "mysql" in chosen:
        left.add("throttlers")
    return left


def is_left_out(item: pytest.Item) -> bool:
    """Whether the leg that runs leaves this test to another one."""
    left = set(filter(None, os.environ.get("LEFT_OUT", "").split(",")))
    return bool(left) and bool(left & kinds_of(item))


def kinds_of(item: pytest.Item) -> set[str]:
    if item.nodeid.startswith(NO_PART):
        return {"throttlers"}
    if not touches_database(item):
        return {"blind"} if item.nodeid.startswith(BLIND) else set()
    callspec = getattr(item, "callspec", None)  # of a test without parameters there is none
    kinds = {callspec.params.get("broker")} & {"embedded", "kafka"} if callspec else set()
    if item.nodeid.startswith(THROTTLERS) and "cassandra" not in item.nodeid:  # which runs beside one server alone
        kinds.add("throttlers")
    elif item.get_closest_marker("processes"):
        kinds.add("processes")
    if PAGES.search(item.nodeid):
        kinds.add("pages")
    if MASKS.search(item.nodeid):
        kinds.add("masks")
    return kinds


def touches_database(item: pytest.Item) -> bool:
    return bool(item.get_closest_marker("django_db") or DATABASE & set(getattr(item, "fixturenames", ())))
