"""`verify --kafka`: positions against the log, sent batches against the output topic."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db.models import F

from buffer.events.models import Batch, Bucket
from buffer.flow import Aggregator
from buffer.ledger.flow import Ledger
from buffer.verify import Published
from buffer.workers import flush, ingest
from config.database.clock import database_now
from config.kafka import client, topic_name
from outbox.bookkeeping.models import Watermark
from tests.config.conftest import broker, make_topic
from tests.conftest import order

__all__ = ["broker", "make_topic"]

pytestmark = pytest.mark.django_db(transaction=True)
BATCHES, POSITIONS = "every sent batch stands in", "every watermark fits the log"


def produce(*values: bytes) -> None:
    producer = client.new_producer()
    sent = [producer.send(topic_name("transfer-requests"), value=value, key=b"k", partition=0) for value in values]
    producer.flush()
    assert all(future.succeeded() for future in sent)
    producer.close()


def work(*values: bytes) -> None:
    """Read and send these orders with the flow's own workers."""
    produce(*values)
    ingest(["transfer-requests"], threading.Event(), once=True)
    Bucket.objects.filled().update(urged="manual", due_at=database_now())
    flush(["transfer-requests"], threading.Event(), once=True)


@pytest.fixture
def sent(make_topic):
    make_topic("transfer-requests")
    make_topic("transfer-batches", 2)
    work(*[order(f"A{number}", f"WH-{number}") for number in range(6)])
    assert Batch.objects.sent().count() == 6


def failing() -> dict[str, list]:
    flow = Aggregator()
    checks = [*flow.verify(), *flow.verify_kafka()]
    return {check.name.partition(": ")[2].partition(" transfer")[0]: check.rows for check in checks if not check.ok}


def found(what: str) -> list:
    return next(rows for name, rows in failing().items() if name.startswith(what))


def first() -> Batch:
    return Batch.objects.order_by("pk")[0]


def test_what_was_sent_is_there(sent):
    assert failing() == {}
    Batch.objects.update(content_hash="")  # as from before there was a digest
    assert failing() == {}


def test_more_may_be_sent_while_it_looks(sent, monkeypatch):
    from buffer import verify

    read = verify.Published.of

    def read_and_go_on(topic):
        published = read(topic)
        work(order("B1", "WH-1"), order("B2", "WH-2"))
        return published

    monkeypatch.setattr(verify.Published, "of", read_and_go_on)
    assert failing() == {}
    assert Batch.objects.sent().count() == 8


@pytest.mark.parametrize("offset", [99_999, 0])
def test_an_invented_place_is_found(sent, offset):
    batch = Batch.objects.exclude(output_offset=0).first() if offset == 0 else first()
    Batch.objects.filter(pk=batch.pk).update(output_offset=offset)
    (row,) = found(BATCHES)
    assert (row["batch"], row["offset"]) == (str(batch.pk), offset)


def test_a_claimed_batch_called_sent_is_found(sent):
    ended = Batch.objects.order_by("pk").last()
    ended.pk, ended.content_hash = "0" * 32, "f" * 32
    ended.output_offset += 1000
    ended.save(force_insert=True)
    assert [row["batch"] for row in found(BATCHES)] == ["00000000-0000-0000-0000-000000000000"]


def test_other_bytes_than_those_in_the_topic_are_found(sent):
    Batch.objects.filter(pk=first().pk).update(content_hash="", payload="{}")
    assert [row["batch"] for row in found(BATCHES)] == [str(first().pk)]


def test_what_is_older_than_the_log_or_the_topic_is_left_out():
    made, place = datetime(2026, 5, 1, tzinfo=UTC), ("t", 0)
    published = Published({place: 10}, {place: 20}, oldest=made)
    assert published.is_gone(place, 9, made + timedelta(days=1))
    assert published.is_gone(place, 10, made - timedelta(days=1))
    assert not published.is_gone(place, 10, made - timedelta(seconds=1)), "clocks differ"
    assert not Published({place: 0}, {place: 0}).is_gone(place, 0, made), "an empty topic has lost it"


def test_a_watermark_beyond_the_log_is_found(sent):
    Watermark.objects.update(next_offset=F("next_offset") + 1)
    (row,) = found(POSITIONS)
    assert (row["partition"], row["watermark"]) == (0, 7)
    assert "the log ends at 6" in row["why"]


def test_a_watermark_of_another_topic_of_this_name_is_found(sent, broker):
    if broker is not None:
        pytest.skip("the embedded broker has no topic ids")
    Watermark.objects.update(topic_id="another")
    assert "created again" in found(POSITIONS)[0]["why"]


@pytest.mark.parametrize("change", [lambda rows: rows.update(next_offset=2), lambda rows: rows.delete()])
def test_a_watermark_behind_what_the_group_committed_is_found(sent, change):
    change(Watermark.objects.all())
    assert "the group has committed more" in found(POSITIONS)[0]["why"]


def test_a_position_beyond_a_stock_topic_is_found(make_topic, settings):
    settings.MOVEMENTS = {"PAYMENT_SUCCESS": settings.MOVEMENTS["PAYMENT_SUCCESS"]}
    topic = make_topic("PAYMENT_SUCCESS")
    assert [check.ok for check in Ledger().verify_kafka()] == [True]
    Watermark.objects.create(
        group=topic_name("buffer-track"), topic=topic, partition=0, next_offset=5, updated_at=database_now()
    )
    (check,) = Ledger().verify_kafka()
    assert "the log ends at 0" in check.rows[0]["why"]


def test_without_a_broker_one_line_says_so(settings, db):
    settings.KAFKA_BOOTSTRAP_SERVERS = ["127.0.0.1:1"]
    with pytest.raises(CommandError, match=r"KAFKA_BOOTSTRAP_SERVERS=127\.0\.0\.1:1: [^\n]+$"):
        call_command("verify", "--kafka", "--flow", "buffer")
