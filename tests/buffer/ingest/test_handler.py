"""Ingestion: what becomes of each delivery, on whichever database runs this suite."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from buffer.events.models import Bucket, BufferedEvent
from buffer.ingest import handler as ingesting
from buffer.ingest.batch import OrderClassifier
from buffer.ingest.handler import Ingest
from buffer.partitioned import add_months
from config.database.clock import database_now
from config.database.dialects.vendors import dialect_for
from config.database.retry import Stale
from config.kafka import RecordBatch
from outbox.bookkeeping import counters
from outbox.bookkeeping.progress import Trends
from outbox.groups.models import FailureGroup
from outbox.letters.models import BurialKey, DeadLetter
from tests.bench.aggregator.ingest import caught, store
from tests.conftest import ORDERED_AT, TOPIC_ID, move_on, order

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("everything_adds_up")]
STREAM = "transfer-requests"


def only_event() -> BufferedEvent:
    return BufferedEvent.objects.get()


def counted(name: str) -> int:
    return counters.totals(STREAM).get(name, 0)


def send_everything() -> None:
    """As if a batch had taken and sent all that is open."""
    BufferedEvent.objects.update(status="sent")
    Bucket.objects.update(open_count=0, due_at=None)
    counters.add({(STREAM, "flush", "open"): -counted("open")}, database_now())


def test_an_order_waits_in_its_bucket(ingest, records, stream):
    now = ingest(records(order()))
    event, bucket = only_event(), Bucket.objects.get()
    assert (event.status, event.order_id, event.location_id, event.payload) == (
        "pending",
        "A1",
        "WH-1",
        order().decode(),
    )
    assert (event.source_partition, event.source_offset, event.topic_id) == (0, 0, TOPIC_ID)
    assert (bucket.open_count, bucket.first_arrival, bucket.last_arrival) == (1, now, now)
    assert bucket.due_at == bucket.idle_at == now + stream.idle
    assert bucket.cap_at == now + stream.cap


def test_a_newer_message_replaces_an_open_one_and_restarts_the_idle_timer(ingest, records):
    first = ingest(records(order()))
    second = ingest(records(order(items={"S1": 9})))
    event, bucket = only_event(), Bucket.objects.get()
    assert event.payload == order(items={"S1": 9}).decode()
    assert event.revision == 1
    assert (bucket.open_count, bucket.first_arrival, bucket.last_arrival) == (1, first, second)
    assert (counted("accepted"), counted("superseded")) == (1, 1)


def test_a_redelivery_changes_nothing_and_resets_no_timer(ingest, records):
    ingest(records(order()))
    ingest(records(order(items={"S1": 9})))
    before = Bucket.objects.values().get(), BufferedEvent.objects.values().get()
    ingest(records(order(), start=0))  # v1 once more: it must not overwrite v2
    ingest(records(order(items={"S1": 9}), start=1))
    assert (Bucket.objects.values().get(), BufferedEvent.objects.values().get()) == before
    assert counted("redelivered") == 2


def test_within_one_batch_the_newest_position_wins(ingest, records):
    ingest(records(order(items={"S1": 1}), order(items={"S1": 2}), order("A2"), order(items={"S1": 3})))
    assert BufferedEvent.objects.get(order_id="A1").payload == order(items={"S1": 3}).decode()
    assert Bucket.objects.get().open_count == 2
    assert (counted("accepted"), counted("superseded")) == (2, 2)


def test_of_two_partitions_in_one_batch_the_newer_version_wins_whichever_is_polled_last(ingest, records):
    newer = records(order(items={"S1": 2}), partition=1, timestamp=2000)
    ingest([*newer, *records(order(items={"S1": 1}), timestamp=1000)])
    assert only_event().payload == order(items={"S1": 2}).decode()
    assert (counted("accepted"), counted("superseded")) == (1, 1)


def test_offsets_of_another_incarnation_of_the_topic_are_not_compared(ingest, records):
    ingest(records(order(items={"S1": 1}), start=500, timestamp=1000))
    ingest(records(order(items={"S1": 2}), start=0, timestamp=2000), topic_id="another")
    assert only_event().payload == order(items={"S1": 2}).decode()


def test_a_change_after_the_claim_is_one_letter(ingest, records):
    ingest(records(order()))
    send_everything()
    late = records(order(items={"S1": 9}))
    ingest(late)
    ingest(late)  # delivered again
    ingest(records(order(items={"S1": 9})))  # said again by the producer
    ingest(records(order()))  # the original, said again
    letter = DeadLetter.objects.get()
    assert (letter.reason, letter.step, letter.business_key) == ("late_event", "late", "A1")
    assert bytes(letter.payload) == order(items={"S1": 9})
    assert only_event().payload == order().decode()
    assert (counted("late"), counted("redelivered")) == (1, 3)


def test_an_order_that_changes_while_it_is_classified_is_classified_again(ingest, records, monkeypatch):
    """Somebody has requeued a letter of it meanwhile: what was seen belongs to another payload."""
    ingest(records(order()))
    send_everything()

    class Meanwhile(OrderClassifier):
        def __init__(self, stored):
            super().__init__(stored)
            BufferedEvent.objects.update(payload_hash="another")

    monkeypatch.setattr(ingesting, "OrderClassifier", Meanwhile)
    with pytest.raises(Stale):
        ingest(records(order(items={"S1": 5})))
    assert not DeadLetter.objects.exists()


def test_every_later_change_is_a_letter_even_within_one_batch(ingest, records):
    ingest(records(order()))
    send_everything()
    ingest(records(order(items={"S1": 2}), order(items={"S1": 3}), order(items={"S1": 2})))
    assert [bytes(letter.payload) for letter in DeadLetter.objects.order_by("offset")] == [
        order(items={"S1": 2}), order(items={"S1": 3}), order(items={"S1": 2}),
    ]  # fmt: skip


def test_poison_is_a_letter_with_its_raw_bytes_and_the_rest_flows(ingest, records):
    found = records(b"{bad", order(), None, b"\xff\x00", order("A2"))
    ingest(found)
    ingest(found)
    assert BufferedEvent.objects.count() == 2
    letters = {letter.offset: letter for letter in DeadLetter.objects.all()}
    assert sorted(letters) == [0, 2, 3]
    assert bytes(letters[0].payload) == b"{bad"
    assert letters[2].payload is None
    assert bytes(letters[3].payload) == b"\xff\x00"
    assert (counted("parked"), counted("redelivered")) == (3, 5)
    assert BurialKey.objects.count() == 3


def test_a_refused_record_is_found_by_the_order_that_it_names(ingest, records):
    nul, number, no_order = b'{"order_id": "A3\\u0000"}', b'{"order_id": 7}', b'{"location_id": "WH-1"}'
    ingest(
        records(
            order("A1", items={"S": 0}), order("A2", at="yesterday"), nul, number, no_order, b"[7]", b"7", b"{", None
        )
    )
    keys = dict(DeadLetter.objects.values_list("offset", "business_key"))
    assert keys == {0: "A1", 1: "A2", 2: "A3\ufffd", 3: "7", 4: "", 5: "", 6: "", 7: "", 8: ""}


def test_a_refused_record_of_a_stream_that_locks_nothing_is_a_letter(ingest, records, stream, monkeypatch):
    monkeypatch.setattr(stream, "locked", ())
    ingest(records(b'{"order_id": 7}'))
    assert DeadLetter.objects.get().business_key == ""


def test_letters_of_one_cause_are_one_group(ingest, records):
    ingest(records(b"{bad", b"{bad", order("items", items={"S": 0})))
    groups = {group.reason: group.open_count for group in FailureGroup.objects.all()}
    assert groups == {"invalid_json": 2, "wrong_field": 1}


def test_four_spellings_are_four_warehouses(ingest, records):
    spellings = ["WH-a", "WH-A", "WH-á", "WH-a "]
    ingest(records(*[order("A1", spelling) for spelling in spellings]))
    ingest(records(*[order("a1", spelling) for spelling in spellings]))
    assert set(Bucket.objects.values_list("location_id", "open_count")) == {(spelling, 2) for spelling in spellings}
    assert BufferedEvent.objects.count() == 8


def test_an_order_repeated_and_changed_across_midnight_of_the_month_stays_one_row(ingest, records):
    at = f"{ORDERED_AT[:4]}-01-31T23:30:00-02:00"  # already February in UTC
    ingest(records(order(at=at)))
    ingest(records(order(at=at, items={"S1": 5})))
    assert only_event().partition_key == int(f"{ORDERED_AT[:4]}02")
    assert only_event().revision == 1


@pytest.mark.parametrize("at", ["2001-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", "2199-01-01T00:00:00Z"])
def test_outside_the_window_is_a_letter_and_no_error_loop(ingest, records, at):
    ingest(records(order(at=at)))
    assert DeadLetter.objects.get().reason == "outside_window"
    assert not BufferedEvent.objects.exists()


def test_both_ends_of_the_window_have_partitions(ingest, records, settings):
    now = database_now()
    months = [add_months(now, -settings.BUFFER_RETENTION_MONTHS), add_months(now, 3)]
    ingest(records(*[order(f"A{month}", at=f"{month // 100}-{month % 100:02d}-01T00:00:00Z") for month in months]))
    assert list(BufferedEvent.objects.order_by("partition_key").values_list("partition_key", flat=True)) == months


def test_the_same_position_with_another_payload_is_an_alarm(ingest, records):
    ingest(records(order(), start=0))
    ingest(records(order(items={"S1": 9}), start=0))
    assert DeadLetter.objects.get().reason == "position_conflict"


def test_a_full_bucket_is_due_at_once(ingest, records, stream, monkeypatch):
    monkeypatch.setattr(stream, "max_batch", 3)
    ingest(records(order("A1"), order("A2")))
    assert Bucket.objects.get().due_at > database_now()
    now = ingest(records(order("A3")))
    assert Bucket.objects.get().due_at == now
    now = ingest(records(*[order(f"B{n}", "WH-2") for n in range(3)]))
    assert Bucket.objects.get(location_id="WH-2").due_at == now


def test_a_held_bucket_fills_and_is_not_due(ingest, records):
    ingest(records(order()))
    Bucket.objects.update(held=True, due_at=None)
    ingest(records(order("A2")))
    bucket = Bucket.objects.get()
    assert (bucket.open_count, bucket.due_at) == (2, None)


def test_a_crash_before_the_commit_leaves_nothing(records, stream):
    handler = Ingest(stream)
    batch = RecordBatch(records(order(), b"{bad"), {"transfer-requests": TOPIC_ID})
    batch.prepared = handler.prepare(batch)
    with pytest.raises(KeyboardInterrupt), transaction.atomic():
        handler.write(batch, database_now())
        raise KeyboardInterrupt
    assert not BufferedEvent.objects.exists()
    assert not DeadLetter.objects.exists()
    assert counters.totals(STREAM) == {}


def test_pressure_begins_above_the_high_water_mark_and_ends_below_the_low_one(ingest, records, stream, settings):
    settings.BUFFER_HIGH_WATER = 10
    handler = Ingest(stream)
    ingest(records(*[order(f"A{n}") for n in range(10)]))
    assert handler.pressure()
    counters.add({(STREAM, "flush", "open"): -1}, database_now())
    assert handler.pressure()  # 9 of 10: not yet relieved
    counters.add({(STREAM, "flush", "open"): -2}, database_now())
    assert not handler.pressure()
    counters.add({(STREAM, "flush", "open"): 3}, database_now())


def test_the_window_is_counted_in_months():
    now = database_now().replace(year=2026, month=2, day=1)
    assert [add_months(now, n) for n in (-14, -2, -1, 0, 10, 11)] == [202412, 202512, 202601, 202602, 202612, 202701]
    assert add_months(now + timedelta(days=0), 1) == 202603


def test_letters_that_are_read_again_are_repeats(ingest, records):
    ingest(records(order("A1")))
    found = records(order("A1", items={"S1": 9}), b"{", b"\xff", start=0)  # the first one: a position with two payloads
    for _ in range(3):
        ingest(found)
    assert (counted("parked"), counted("late"), counted("redelivered")) == (2, 1, 6)
    assert Trends(database_now(), [STREAM]).in_last_hour("parked", "late") == DeadLetter.objects.count() == 3


def test_a_record_that_the_database_refuses_again_is_a_repeat(stream, records):
    (record,) = records(order())
    for _ in range(2):
        batch = RecordBatch([record], {record.topic: TOPIC_ID})
        with transaction.atomic():
            Ingest(stream).park(batch, record, ValueError("no"), "", database_now())
            move_on("buffer-ingest", batch, database_now())
    assert (counted("read"), counted("parked"), counted("redelivered")) == (2, 1, 1)


def test_the_bench_measures_the_statement_that_stores_a_batch(db, stream, records):
    handler, sent = Ingest(stream), records(order(), order(order_id="A2"))
    with transaction.atomic():
        statement = caught(handler, RecordBatch(sent, {sent[0].topic: TOPIC_ID}))
        assert not BufferedEvent.objects.exists()
        with dialect_for(connection).cursor(connection) as cursor:
            cursor.execute(statement.sql, statement.params)
        assert [event.order_id for event in BufferedEvent.objects.order_by("order_id")] == ["A1", "A2"]
        BufferedEvent.objects.all().delete()
        for row in handler.prepare(RecordBatch(sent, {})).rows.values():
            store(stream.name, row)
        assert BufferedEvent.objects.filter(traceparent=None).count() == 2
        BufferedEvent.objects.all().delete()  # without their buckets nothing would add up
