"""The intake of promises: killed between any two statements, and cut off during its COMMIT."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.db import connection

from outbox.bookkeeping import counters
from outbox.bookkeeping.models import Watermark
from outbox.intake.handler import NAME
from outbox.models import DeadLetter, IdempotencyKey, OutboxMessage
from tests.crash.platform import Platform
from tests.crash.stock.run import TIMINGS
from tests.crash.stock.traffic import Message
from tests.crash.wire import Wire, wait_for
from tests.outbox.intake.conftest import MAIL, TOPIC, envelope
from tests.processes.conftest import assert_verified, database_url
from tests.processes.proxy import Cutter

SMALL = {"KAFKA_POLL_RECORDS": "20", "KAFKA_WRITERS": "1"}  # nothing else is going on; more than one batch a life


class PromiseWire(Wire):
    """The broker as the intake sees it."""

    inputs, group = (TOPIC,), "outbox-intake"


@pytest.fixture
def wire(settings: Any) -> Iterator[PromiseWire]:
    servers = os.environ.get("TEST_KAFKA_SERVERS", "")
    if not servers:
        pytest.skip("TEST_KAFKA_SERVERS names no Apache Kafka")
    settings.KAFKA_TOPIC_PREFIX = prefix = f"p{uuid.uuid4().hex[:8]}."
    found = PromiseWire(servers, prefix)
    found.create(TOPIC, 3, **{"message.timestamp.type": "LogAppendTime"})
    yield found
    found.close()
    found.delete(TOPIC)


@pytest.fixture
def workers(transactional_db: None, wire: PromiseWire, tmp_path: Path) -> Iterator[Platform]:
    environment = {
        **TIMINGS, "KAFKA_BOOTSTRAP_SERVERS": wire.servers, "KAFKA_TOPIC_PREFIX": wire.prefix,
        "DATABASE_URL": database_url(),
    }  # fmt: skip
    with Platform(tmp_path, environment) as platform:
        yield platform


def promise(name: str, **more: Any) -> Message:
    value = msgspec.json.encode(envelope(name, aggregate=name, **more))
    return Message(TOPIC, name.encode(), value)


def wave(number: int) -> list[Message]:
    """Thirty promises, some of them again, one key for another message, and a record that is none."""
    new = [promise(f"P{number}-{place}") for place in range(30)]
    other = promise(f"P{number}-1", payload={**MAIL, "to": "eve@example.com"})
    return [*new, *new[:3], other, Message(TOPIC, b"poison", b"{poison %d" % number)]


def state() -> tuple[Any, ...]:
    """What has been committed."""
    return (
        sorted(OutboxMessage.objects.values_list("aggregate", "payload")),
        sorted(IdempotencyKey.objects.values_list("key", flat=True)),
        sorted(bytes(letter.payload or b"") for letter in DeadLetter.objects.all()),
        counters.totals(NAME),
    )


def written() -> int:
    return sum(Watermark.objects.values_list("next_offset", flat=True))


def assert_whole(waves: int) -> None:
    """Every promise once, two letters a wave."""
    messages, keys, letters, _ = state()
    assert len({aggregate for aggregate, _ in messages}) == len(messages) == len(keys) == 30 * waves
    assert not [payload for _, payload in messages if "eve" in payload]
    assert len(letters) == 2 * waves


def test_an_intake_that_dies_between_any_two_statements_stores_every_promise_once(
    wire: PromiseWire, workers: Platform
) -> None:
    points = ["promised", "refused", "counted", "written", "stored"]
    for number, point in enumerate(points):
        wire.produce(wave(number))
        before = state()
        program = ["-m", "tests.processes.saboteur", point, "kill", "ingest_messages"]
        assert workers.launch(program, point, SMALL).end(40) == -9
        wire.evict()
        assert (state() == before) is (point != "stored")
    intake = workers.start("ingest_messages")
    wait_for(lambda: written() == len(points) * len(wave(0)), 40, "every record to be written")
    assert intake.stop() == 0
    assert_whole(len(points))
    assert_verified()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_connection_that_is_cut_during_the_commit_stores_every_promise_once(
    wire: PromiseWire, workers: Platform, moment: str
) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no connection that could be cut")
    quote = connection.ops.quote_name(IdempotencyKey._meta.db_table).encode()
    wire.produce(wave(0))
    with closing(Cutter(database_url(), b"INSERT INTO " + quote, moment)) as cutter:
        intake = workers.start("ingest_messages", DATABASE_URL=cutter.url)
        wait_for(lambda: "database_unavailable" in intake.text, 40, "the worker to notice")
        wait_for(lambda: written() == len(wave(0)), 40, "every record to be written")
        assert cutter.cuts == 1
        assert intake.stop() == 0
    assert_whole(1)
    assert_verified()
