"""The example consumer does what docs/consumer.md promises: copies, crashes and supplements count once."""

import importlib.util
import json
import sqlite3
import threading
from contextlib import closing
from types import SimpleNamespace

import pytest

from buffer.events.models import Bucket
from buffer.flush.flusher import Flusher
from config.database.clock import database_now
from config.demo.embedded_kafka import EmbeddedKafka
from tests.conftest import order
from tests.services.embedded import CLIENT_OPTIONS
from tests.tree import ROOT

EXAMPLE = ROOT / "docs" / "examples" / "batch_consumer.py"
BATCH = {
    "batch_id": "8d91b51f-1277-592f-b610-7dfc8d9e2211",
    "location_id": "WH-1",
    "items": [{"sku": "S1", "quantity": 12}, {"sku": "S2", "quantity": 1}],
}
SUPPLEMENT = {
    "batch_id": "b11a5ef5-b9d5-50ea-a8fc-28e1aea02954",
    "location_id": "WH-1",
    "supplement_of": BATCH["batch_id"],
    "items": [{"sku": "S1", "quantity": -5}, {"sku": "S3", "quantity": 2}],
}


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("batch_consumer", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def file(tmp_path):
    return tmp_path / "batches.sqlite3"


@pytest.fixture
def inbox(example, file):
    with closing(sqlite3.connect(file)) as connection:
        made = example.Inbox(connection)
        made.create_tables()
        yield made


def requested(file):
    with closing(sqlite3.connect(file)) as connection:
        return dict(connection.execute("SELECT sku, quantity FROM stock_request"))


def test_a_copy_changes_nothing(inbox, file):
    assert [inbox.apply(BATCH), inbox.apply(BATCH)] == [True, False]
    assert requested(file) == {"S1": 12, "S2": 1}


def test_a_supplement_is_added_with_its_sign(inbox, file):
    assert [inbox.apply(BATCH), inbox.apply(SUPPLEMENT), inbox.apply(SUPPLEMENT)] == [True, True, False]
    assert requested(file) == {"S1": 7, "S2": 1, "S3": 2}


def test_a_crash_in_the_effect_leaves_no_trace_of_the_batch(example, inbox, file, monkeypatch):
    effect = example.Inbox.request_stock

    def dies(self, message):
        effect(self, message)
        raise KeyboardInterrupt

    monkeypatch.setattr(example.Inbox, "request_stock", dies)
    with pytest.raises(KeyboardInterrupt):
        inbox.apply(BATCH)
    monkeypatch.undo()
    assert requested(file) == {}
    assert inbox.apply(BATCH)
    assert requested(file) == {"S1": 12, "S2": 1}


def test_a_refusal_by_the_effect_is_not_taken_for_a_copy(inbox, file):
    with pytest.raises(sqlite3.IntegrityError):
        inbox.apply({**BATCH, "items": [{"sku": "S1", "quantity": None}]})
    assert inbox.apply(BATCH)


def test_of_two_consumers_with_the_same_copy_one_counts_it(example, inbox, file):
    barrier, verdicts = threading.Barrier(2), []

    def run():
        with closing(sqlite3.connect(file, timeout=30)) as connection:
            barrier.wait()
            verdicts.append(example.Inbox(connection).apply(BATCH))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(verdicts) == [False, True]
    assert requested(file) == {"S1": 12, "S2": 1}


class Polls:
    """A consumer that brings its polls one after the other and remembers what was committed, and when."""

    def __init__(self, inbox, *polls):
        self.inbox = inbox
        self.polls = list(polls)
        self.committed = []

    def poll(self, timeout_ms):
        return self.polls.pop(0)

    def commit(self, offsets):
        assert not self.inbox.connection.in_transaction
        self.committed += [(partition, found.offset) for partition, found in offsets.items()]


def record(offset, message):
    return SimpleNamespace(offset=offset, value=json.dumps(message).encode())


def test_offsets_follow_the_database(example, inbox):
    consumer = Polls(inbox, {}, {0: [record(4, BATCH), record(5, SUPPLEMENT)]}, {1: [record(9, BATCH)]}, {})
    said = []
    example.consume(consumer, inbox, once=True, say=said.append)
    assert consumer.committed == [(0, 6), (1, 10)]
    assert [line.split(maxsplit=2)[2] for line in said] == ["applied", "applied", "skipped, a copy"]


def test_an_offset_is_not_committed_when_the_effect_fails(example, inbox):
    consumer = Polls(inbox, {0: [record(4, {**BATCH, "items": [{}]})]})
    with pytest.raises(KeyError):
        example.consume(consumer, inbox, once=True, say=[].append)
    assert consumer.committed == []


@pytest.mark.django_db
def test_it_reads_what_the_flusher_publishes(example, inbox, file, ingest, records, stream, producer):
    ingest(records(order("A1", items={"S1": 3}), order("A2", items={"S1": 4, "S2": 1})))
    Bucket.objects.update(urged="manual", due_at=database_now())
    assert Flusher([stream], producer).tick() == 1
    (message,) = producer.values
    assert [inbox.apply(message), inbox.apply(message)] == [True, False]
    assert requested(file) == {"S1": 7, "S2": 1}


def test_from_the_broker_to_the_table(example, file, capsys):
    from kafka import KafkaProducer

    with EmbeddedKafka() as broker:
        broker.create_topic("transfer-batches", 1)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **CLIENT_OPTIONS)
        for message in (BATCH, BATCH, SUPPLEMENT):
            producer.send("transfer-batches", json.dumps(message).encode()).get(10)
        producer.close()
        server = ["--servers", broker.bootstrap_servers, "--api-version", "2.3"]
        example.main([*server, "--database", str(file), "--once"])
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert requested(file) == {"S1": 7, "S2": 1, "S3": 2}
