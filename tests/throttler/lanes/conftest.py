"""Fixtures of the tests that read lanes back from a broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.config.conftest import broker, make_topic  # noqa: F401 (fixtures)
from tests.throttler.lanes.kafka_world import Told, World
from throttler.lanes import restore_thread as module
from throttler.lanes.restore_thread import RestoreThread


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    found = Told()
    monkeypatch.setattr(module, "log", found)
    return found


@pytest.fixture
def world(make_topic, told) -> Iterator[World]:  # noqa: F811
    found = World(make_topic)
    yield found
    found.producer.close()


@pytest.fixture
def restoring(world: World, settings: Any, broker: Any) -> Iterator[RestoreThread]:  # noqa: F811
    settings.KAFKA_TRANSACTIONS = broker is None
    with closing(RestoreThread(world.input, world.changelog, world.group)) as found:
        yield found
