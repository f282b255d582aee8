"""Fixtures: a connector that streams the test database's outbox into a topic of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from pytest_django.plugin import blocking_manager_key

from tests.debezium.connector import Connector, Reader, create_publication, sweep


def pytest_collection_finish(session: pytest.Session) -> None:
    """Before the test database is made: PostgreSQL does not drop an old one that a killed run's slot still reads."""
    url = os.environ.get("TEST_CONNECT_URL", "")
    mine = any(Path(__file__).parent in item.path.parents for item in session.items)
    if url and mine and connection.vendor != "sqlite" and not session.config.option.collectonly:
        # One that does not answer is reported by the tests that need it.
        with session.config.stash[blocking_manager_key].unblock(), suppress(OSError):
            sweep(url, os.environ.get("TEST_KAFKA_SERVERS", ""))


@pytest.fixture(scope="session", params=["debezium"])
def worker(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Addresses of Kafka Connect and of its broker; the parameter's name tells the leg in the test's name."""
    url, servers = os.environ.get("TEST_CONNECT_URL", ""), os.environ.get("TEST_KAFKA_SERVERS", "")
    if connection.vendor == "sqlite":
        pytest.skip("Debezium reads PostgreSQL, MariaDB and MySQL")
    if not url or not servers:
        pytest.skip("TEST_CONNECT_URL and TEST_KAFKA_SERVERS name no Kafka Connect")
    return url, servers


@pytest.fixture(scope="session")
def new_connector(
    worker: tuple[str, str], django_db_setup: None, django_db_blocker: Any
) -> Iterator[Callable[[], Connector]]:
    """Connectors that are deleted when the session ends, if nobody has done it before."""
    made: list[Connector] = []

    def make() -> Connector:
        made.append(Connector(*worker))
        return made[-1]

    with django_db_blocker.unblock():
        create_publication()
    yield make
    with django_db_blocker.unblock():
        for connector in made:
            connector.delete()


@pytest.fixture
def connector(new_connector: Callable[[], Connector], transactional_db: None) -> Iterator[Connector]:
    """A running connector of this test alone: .stop() .start() .restart_from_scratch() .delete()."""
    own = new_connector()
    try:
        own.start()
        yield own
    finally:
        own.delete()


@pytest.fixture(scope="session")
def shared_connector(new_connector: Callable[[], Connector], django_db_blocker: Any) -> Connector:
    """One that runs all the time, for tests that only look at what it says."""
    shared = new_connector()
    with django_db_blocker.unblock():
        shared.start()
    return shared


@pytest.fixture
def reader(shared_connector: Connector, transactional_db: None) -> Iterator[Reader]:
    """What the shared connector brings from now on."""
    found = shared_connector.reader()
    found.consumer.seek_to_end()
    for partition in found.consumer.assignment():
        found.consumer.position(partition)  # asked now: a lazy seek would skip the test's own records
    yield found
    found.close()
