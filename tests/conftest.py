"""Fixtures every test shares: records, ingestion without a broker, a producer that remembers."""

from __future__ import annotations

import gc
import importlib
import math
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.db import transaction
from django.test import override_settings
from hypothesis import HealthCheck, settings

from buffer.ingest.handler import Ingest
from buffer.streams import streams
from config.database.clock import database_now
from config.kafka import Outgoing, RecordBatch, Replayed, Sent, topic_name
from config.kafka.client import reachability
from outbox.bookkeeping.watermarks import Watermarks
from outbox.messages import notify
from spillway_ext.testing import Sink
from tests.emptying import emptied_by_delete
from tests.shares import is_left_out, is_of_another_piece, touches_database

# What `make quick` does not open, or leaves out by its fixtures.
TESTS = Path(__file__).parent
SLOW_FOLDERS = {TESTS / name for name in ("debezium", "processes", "crash", "bench", "drills", "screenshots")}
WHOLLY_SLOW = re.compile(r"^pytestmark = (?:\[\s*)?pytest\.mark\.(?:django_db|processes|kafka|browser)\b", re.MULTILINE)
BROKERS = {"broker", "embedded", "kafka", "cassandra"}
ORDERED_AT = datetime.now(UTC).isoformat().replace("+00:00", "Z")
TOPIC_ID = "11111111-2222-3333-4444-555555555555"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only what needs no database, broker, browser or process")


def pytest_configure(config: pytest.Config) -> None:
    """No example may fail because the machine is busy; `make quick` tries fewer of them."""
    gc.disable()  # until all tests are read: a third of that time went into looking for garbage among them
    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("suite", patient)
    settings.register_profile("quick", patient, max_examples=15)
    settings.load_profile("quick" if config.getoption("quick") else "suite")


def pytest_collection() -> None:
    """Tests are made for each page of the admin: those there are when the process has its URLs."""
    importlib.import_module("config.urls")


def pytest_collection_finish() -> None:
    """What has been read stays to the end, and is not looked at again."""
    gc.freeze()
    gc.set_threshold(5_000, 20, 20)
    gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A quarter of a minute of imports saved: a file whose every test needs the database is not opened."""
    if not config.getoption("quick"):
        return True if is_of_another_piece(collection_path) else None
    if collection_path.is_dir():
        return True if collection_path in SLOW_FOLDERS else None
    return True if collection_path.suffix == ".py" and WHOLLY_SLOW.search(collection_path.read_text()) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`make quick` runs what needs nothing, a leg of `make test` what it leaves to no other one."""
    if config.getoption("quick"):
        deselected = {item for item in items if needs_servers(item)} | set(schedules_beyond_a_few(items))
    else:
        deselected = {item for item in items if is_left_out(item)}
    config.hook.pytest_deselected(items=list(deselected))
    items[:] = [item for item in items if item not in deselected]


def needs_servers(item: pytest.Item) -> bool:
    marked = any(item.get_closest_marker(name) for name in ("kafka", "processes", "browser"))
    return marked or touches_database(item) or bool(BROKERS & set(getattr(item, "fixturenames", ())))


def schedules_beyond_a_few(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """As of Hypothesis' examples: of random schedules, and of what only many of them find, some are enough for now."""
    tried: Counter[str] = Counter()
    for item in items:
        if few := item.get_closest_marker("schedules"):
            test = item.nodeid.partition("[")[0]
            tried[test] += 1
            if tried[test] > few.args[0]:
                yield item


def order(order_id: str = "A1", location_id: str = "WH-1", at: str = "", **more: Any) -> bytes:
    """A valid transfer request; `more` overrides or adds fields, `items` is {sku: quantity}."""
    items = [{"sku": sku, "quantity": quantity} for sku, quantity in more.pop("items", {"S1": 1}).items()]
    at = at or ORDERED_AT
    return msgspec.json.encode(
        {"order_id": order_id, "location_id": location_id, "ordered_at": at, "items": items, **more}
    )


@pytest.fixture(scope="session", autouse=True)
def empty_by_delete() -> Iterator[None]:
    """Between tests tables are emptied by DELETE, and filled again only where a test changed what `migrate` fills."""
    with emptied_by_delete():
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_passwords() -> Iterator[None]:
    """A password that nobody attacks: the default takes a quarter of a second of processor for each account."""
    with override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]):
        yield


@pytest.fixture(scope="session", autouse=True)
def no_heartbeat() -> Iterator[None]:
    """A command that a test runs in this process reports to nobody: its thread would write beside the test's transaction."""
    with override_settings(HEARTBEAT=""):
        yield


@pytest.fixture(autouse=True)
def no_child_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `make quick` promises: a test that starts a process, and is not marked so, ends there."""

    def refuse(*_: Any, **__: Any) -> None:
        pytest.skip("it starts a process")

    if request.config.getoption("quick"):
        monkeypatch.setattr(subprocess.Popen, "__init__", refuse)


@pytest.fixture(autouse=True)
def no_notifiers() -> Iterator[None]:
    """The thread that sends NOTIFY has a connection: it would outlive the test, and then the test database."""
    yield
    notify.stop_notifiers()


@pytest.fixture(autouse=True)
def kafka_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages ask Kafka when all workers are silent; most tests have none, and mean silent workers."""
    monkeypatch.setattr(reachability, "until", math.inf)
    monkeypatch.setattr(reachability, "answer", True)


@pytest.fixture
def stream():
    return streams()["transfer-requests"]


@pytest.fixture
def records() -> Callable[..., list[Replayed]]:
    """Turn values into records with rising offsets; `start` repeats old positions."""
    offsets = count()

    def make(*values: bytes | None, partition: int = 0, start: int | None = None, timestamp: int = 0) -> list[Replayed]:
        numbers = offsets if start is None else count(start)
        return [
            Replayed("transfer-requests", partition, number, timestamp or 1_700_000_000_000 + number, b"k", value)
            for number, value in zip(numbers, values, strict=False)
        ]

    return make


def move_on(group: str, batch: RecordBatch, now: datetime) -> None:
    """Store the positions behind what was read from the topic, as the consumer does in the same transaction."""
    if not batch.revision:
        Watermarks().advance(topic_name(group), batch.marks, now)


@pytest.fixture
def ingest(db: None, stream: Any) -> Callable[..., datetime]:
    """Store records as the consumer would; returns the database time of the transaction."""

    def run(found: list[Replayed], *, revision: int = 0, topic_id: str = TOPIC_ID) -> datetime:
        handler = Ingest(stream)
        batch = RecordBatch(found, {found[0].topic: topic_id}, revision=revision)
        batch.prepared = handler.prepare(batch)
        with transaction.atomic():
            now = database_now()
            handler.write(batch, now)
            move_on(handler.group, batch, now)
        return now

    return run


class MemoryProducer(Sink):
    """`outcomes` scripts what it answers."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: list[Any] = []
        self.ids: dict[str, str] = {}

    def send_all(self, messages: list[Outgoing]) -> list[Any]:
        answers = []
        for message in messages:
            answer = self.outcomes.pop(0) if self.outcomes else Sent(0, len(self.sent))
            if isinstance(answer, Sent):
                self.sent.append(message)
            answers.append(answer)
        return answers

    def topic_ids(self, topics: Any) -> dict[str, str]:
        return self.ids

    @property
    def values(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(message.value) for message in self.sent]


@pytest.fixture
def producer() -> Iterator[MemoryProducer]:
    yield MemoryProducer()
