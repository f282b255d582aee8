"""A service promises mails in an outbox of its own; the real outbox event router brings them, and each is sent once."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import connection

from config.kafka import Replayed
from outbox.bookkeeping import counters
from outbox.intake.envelope import read
from outbox.intake.handler import NAME
from outbox.models import DeadLetter, OutboxMessage
from tests.crash.mail.places import PLACES
from tests.crash.mail.run import TIMINGS
from tests.crash.platform import Platform, Worker
from tests.crash.wire import Output, wait_for
from tests.debezium.router import TOPIC, Router, insert, promise
from tests.processes.conftest import assert_verified, database_url

# By hand: PROMISES=10000 pytest tests/debezium/test_router.py
PROMISES = int(os.environ.get("PROMISES", "300"))
KILLS = 3


@pytest.fixture
def router(worker: tuple[str, str], transactional_db: None, settings) -> Iterator[Router]:
    own = Router(*worker)
    settings.KAFKA_TOPIC_PREFIX = own.prefix
    try:
        own.start()
        yield own
    finally:
        own.delete()


def test_a_row_becomes_the_envelope_that_was_documented(router):
    moment = datetime(2030, 1, 1, 12, 30, 15, 250_000, UTC)
    value = moment if connection.vendor == "postgresql" else moment.replace(tzinfo=None)
    first, second = promise(1), promise(2, expires_at=value)
    insert([first, second])
    output = Output(router.wire, TOPIC)
    try:
        wait_for(lambda: len(output.read()) == 2, 60, "two records")
    finally:
        output.close()
    for published in output.records:
        row = first if published.key == b"invoice:1" else second
        body = json.loads(published.value)
        assert body.keys() == {"channel", "event_type", "aggregate", "idempotency_key", "expires_at", "payload"}
        assert ("producer", b"billing") in published.headers
        at = (published.partition, published.offset, int(time.time() * 1000))
        said = read(Replayed(TOPIC, *at, published.key, published.value, published.headers), TOPIC)
        assert (said.channel, said.event_type, said.aggregate) == ("email", "invoice.issued", row["aggregate"])
        assert said.key == f"{TOPIC}/{row['id']}"
        assert said.given == json.loads(row["payload"])
        assert said.expires_at == (moment if row is second else None)


JSON = "org.apache.kafka.connect.json.JsonConverter"
TEXT = "org.apache.kafka.connect.storage.StringConverter"
IN_HEADERS = {
    "transforms.outbox.table.fields.additional.placement": ",".join(
        f"{name}:header" for name in ("channel", "event_type", "aggregate", "expires_at")
    )
}
CONVERTERS: dict[str, dict[str, str]] = {
    "JSON with schemas": {"key.converter": JSON, "value.converter.schemas.enable": "true"},
    "all by JSON with schemas": {
        "key.converter": JSON, "header.converter": JSON, "value.converter.schemas.enable": "true", **IN_HEADERS,
    },
    "all by JSON": {
        "key.converter": JSON, "key.converter.schemas.enable": "false", "header.converter": JSON,
        "header.converter.schemas.enable": "false", **IN_HEADERS,
    },
    "all by text": {"value.converter": TEXT, **IN_HEADERS},
    "an expanded payload": {"transforms.outbox.table.expand.json.payload": "true", **IN_HEADERS},
    "times as Connect has them": {"time.precision.mode": "connect", **IN_HEADERS},
}  # fmt: skip


@pytest.mark.parametrize("converters", CONVERTERS)
def test_a_row_says_the_same_by_whatever_converters(router, converters):
    moment = datetime(2030, 1, 1, 12, 30, 15, 250_000, UTC)
    value = moment if connection.vendor == "postgresql" else moment.replace(tzinfo=None)
    router.start(**CONVERTERS[converters])
    rows = [promise(1), promise(2, expires_at=value)]
    insert(rows)
    output = Output(router.wire, TOPIC)
    try:
        wait_for(lambda: len(output.read()) == 2, 60, "two records")
    finally:
        output.close()
    promised = {}
    for one in output.records:
        at = (one.partition, one.offset, int(time.time() * 1000))
        said = read(Replayed(TOPIC, *at, one.key, one.value, one.headers), TOPIC)
        promised[said.key.removeprefix(f"{TOPIC}/")] = (said.aggregate, said.event_type, said.expires_at, said.given)
    assert promised == {
        row["id"]: (row["aggregate"], row["event_type"], expires_at, json.loads(row["payload"]))
        for row, expires_at in zip(rows, (None, moment), strict=True)
    }


@pytest.fixture
def platform(router: Router, tmp_path: Path) -> Iterator[Platform]:
    environment = {
        **TIMINGS, "KAFKA_BOOTSTRAP_SERVERS": router.servers, "KAFKA_TOPIC_PREFIX": router.prefix,
        "DATABASE_URL": database_url(), "MESSAGES_IN": f"{TOPIC}@billing=email", "KAFKA_POLL_RECORDS": "50",
        "EMAIL_WINDOW": "20",
    }  # fmt: skip
    with Platform(tmp_path, environment) as found:
        yield found


def test_each_promise_is_mailed_once_although_workers_and_the_connector_die(router, platform):
    """Two deaths of the intake, one of the relay, and a connector that goes on from an older position."""
    rng = random.Random(20_261_126)
    rows = [promise(number) for number in range(PROMISES)]
    place = PLACES["keys"](0.0, 1, False)
    with place.server:
        platform.environment |= place.environment
        commands = {"ingest_messages": ["ingest_messages"], "relay_outbox": ["relay_outbox", "--channel", "email"]}
        living: dict[str, Worker] = {name: platform.start(*command) for name, command in commands.items()}
        deaths = ["ingest_messages", "relay_outbox", "ingest_messages"]
        share = -(-PROMISES // (KILLS + 1))
        for turn in range(KILLS + 1):
            for start in range(turn * share, min((turn + 1) * share, PROMISES), 50):
                insert(rows[start : min(start + 50, (turn + 1) * share)])
            if turn == KILLS:
                break
            name = deaths[turn]
            expected = turn * share + rng.randrange(1, share)
            wait_for(lambda expected=expected, name=name: progress(name, place) >= expected, 300, f"{name} at work")
            living[name].kill()
            assert living[name].end() == -9
            router.wire.group = "outbox-intake"
            router.wire.evict()
            living[name] = platform.start(*commands[name])
        insert([rows[0], rows[-1]])  # the service says it once more
        wait_for(lambda: OutboxMessage.objects.count() >= PROMISES, 600, "every promise to be stored")
        wait_for(lambda: counters.totals(NAME).get("read", 0) >= PROMISES + 2, 120, "the repeats")
        wait_for(lambda: len(set(place.accepted)) >= PROMISES, 1200, "every mail")
        wait_for(lambda: not OutboxMessage.objects.unfinished().exists(), 120, "every message to be settled")
        codes = [process.stop() for process in living.values()]
    assert codes == [0, 0]
    mailed = Counter(place.accepted)
    assert (len(mailed), max(mailed.values())) == (PROMISES, 1)
    assert OutboxMessage.objects.filter(state="sent").count() == OutboxMessage.objects.count() == PROMISES
    assert not DeadLetter.objects.exists()
    assert_verified()


def progress(name: str, place) -> int:
    return OutboxMessage.objects.count() if name == "ingest_messages" else len(place.accepted)


def test_the_snapshot_of_a_new_connector_repeats_nothing(router, platform):
    """Positions and slot are lost: what is still in the table comes again."""
    row = promise(1, expires_at=datetime.now(UTC).replace(tzinfo=None) + timedelta(hours=2))
    names, marks = ", ".join(row), ", ".join(["%s"] * len(row))
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO outbox ({names}) VALUES ({marks})", list(row.values()))
    intake = platform.start("ingest_messages")
    wait_for(lambda: OutboxMessage.objects.count() == 1, 60, "the message")
    router.restart_from_scratch()
    wait_for(lambda: counters.totals(NAME).get("repeated", 0) >= 1, 60, "the repeat")
    assert intake.stop() == 0
    assert OutboxMessage.objects.count() == 1
    assert not DeadLetter.objects.exists()
