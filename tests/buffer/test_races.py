"""Races with real connections and a barrier: two workers at the same rows, on whichever database runs this."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from django.db import connection, transaction

from buffer.events import levers
from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.flush.claim import Candidate, _open_events, claim
from buffer.flush.flusher import Flusher, lease_unsent
from buffer.ingest.handler import Ingest
from config.admin.levers import Operator
from config.database.clock import database_now
from config.kafka import RecordBatch as Records
from config.kafka import Replayed
from outbox.letters.levers import pull
from outbox.letters.models import DeadLetter
from tests.conftest import TOPIC_ID, MemoryProducer, move_on, order
from tests.outbox.race import race

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("everything_adds_up")]
ME = Operator("race")


def urge() -> None:
    Bucket.objects.update(urged="manual", due_at=database_now() - timedelta(seconds=1))


def write(stream, found) -> None:
    handler = Ingest(stream)
    batch = Records(found, {found[0].topic: TOPIC_ID})
    batch.prepared = handler.prepare(batch)
    with transaction.atomic():
        now = database_now()
        handler.write(batch, now)
        move_on(handler.group, batch, now)


def taken(rounds) -> list[str]:
    return [str(batch.pk) for round_ in rounds for batch in round_.batches]


def test_two_flushers_never_claim_the_same_bucket(ingest, records, stream):
    ingest(records(*[order(f"A{n}", f"WH-{n % 60}") for n in range(300)]))
    urge()
    rounds = race(lambda: claim(stream), lambda: claim(stream), lambda: claim(stream))
    assert len(taken(rounds)) == len(set(taken(rounds))) == Batch.objects.count()
    members = Counter(row for batch in Batch.objects.all() for row in batch.event_ids)
    assert set(members.values()) <= {1}
    assert (
        sum(batch.event_count for batch in Batch.objects.all())
        == BufferedEvent.objects.filter(status="claimed").count()
    )


def test_a_batch_is_taken_over_by_one_worker_only(ingest, records, stream):
    ingest(records(*[order(f"A{n}", f"WH-{n}") for n in range(30)]))
    urge()
    claim(stream)
    Batch.objects.update(lease_until=database_now() - timedelta(seconds=1))
    found = race(lambda: lease_unsent([stream]), lambda: lease_unsent([stream]))
    leased = [batch.pk for _token, batches in found for batch in batches]
    assert len(leased) == len(set(leased))


def test_two_ingesters_with_the_same_orders_store_each_once(records, stream):
    one = records(*[order(f"A{n}", f"WH-{n % 7}", items={"S": 1}) for n in range(200)], partition=0, timestamp=1000)
    two = records(
        *[order(f"A{n}", f"WH-{n % 7}", items={"S": 2}) for n in reversed(range(200))], partition=1, timestamp=2000
    )
    race(lambda: write(stream, one), lambda: write(stream, two))
    assert BufferedEvent.objects.count() == 200
    payloads = set(BufferedEvent.objects.values_list("source_partition", flat=True))
    assert payloads == {1}  # the newer record wins, whoever came first
    assert sum(Bucket.objects.values_list("open_count", flat=True)) == 200


def test_ingest_and_flush_at_the_same_warehouse_lose_nothing(ingest, records, stream):
    ingest(records(*[order(f"A{n}", f"WH-{n % 5}") for n in range(100)]))
    urge()
    producer = MemoryProducer()
    flusher = Flusher([stream], producer)
    parts = [records(*[order(f"B{part}-{n}", f"WH-{n % 5}") for n in range(40)]) for part in range(5)]

    def keep_writing():
        for part in parts:
            write(stream, part)

    def keep_flushing():
        for _ in range(10):
            urge_open()
            flusher.tick()

    race(keep_writing, keep_flushing)
    urge_open()
    while flusher.tick():
        urge_open()
    sent = [name for value in producer.values for name in value["order_ids"]]
    assert len(sent) == len(set(sent)) == 300
    assert not BufferedEvent.objects.exclude(status="sent").exists()


def urge_open() -> None:
    Bucket.objects.filter(open_count__gt=0).update(urged="manual", due_at=database_now() - timedelta(seconds=1))


def test_an_update_that_races_the_claim_is_in_the_batch_or_a_letter(ingest, records, stream):
    ingest(records(order(items={"S1": 1})))
    urge()
    update = records(order(items={"S1": 2}))
    race(lambda: claim(stream), lambda: write(stream, update))
    urge_open()
    claim(stream)
    event = BufferedEvent.objects.get()
    newer = event.payload == order(items={"S1": 2}).decode()
    assert event.status == "claimed"
    assert DeadLetter.objects.count() == (0 if newer else 1)
    batch = Batch.objects.get()
    assert f'"quantity":{2 if newer else 1}' in batch.payload


def test_withdraw_and_claim_do_not_both_get_the_order(ingest, records, stream):
    ingest(records(order("A1"), order("A2")))
    urge()
    event = BufferedEvent.objects.get(order_id="A1")
    withdrawn, _round = race(lambda: levers.withdraw([event.pk], ME, "x"), lambda: claim(stream))
    urge_open()
    claim(stream)
    event.refresh_from_db()
    assert event.status == ("discarded" if withdrawn else "claimed")
    assert sum("A1" in batch.payload for batch in Batch.objects.all()) == (0 if withdrawn else 1)


def test_two_people_requeue_one_letter_once(ingest, records):
    ingest(records(b"{bad"))
    letter = DeadLetter.objects.get()
    results = race(
        lambda: pull("requeue", [letter.pk], ME, "x").failed, lambda: pull("requeue", [letter.pk], ME, "y").failed
    )
    assert sorted(map(len, results)) == [0, 1], "it is still no JSON"
    assert DeadLetter.objects.count() == 2


def arrival(stream, name: str) -> None:
    write(stream, [Replayed("transfer-requests", 0, int(name[1:]), 0, b"k", order(name))])


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite takes one transaction at a time")
def test_an_order_that_arrives_while_its_empty_bucket_is_released_is_due(stream, transactional_db):
    """At whichever moment: here before each statement about the bucket but the first."""
    arrival(stream, "A0")
    urge()
    claim(stream)
    bucket = Bucket.objects.get()
    levers.hold([bucket.pk], ME, "stocktake")
    statements = []

    def between(execute, sql, params, many, context):
        if sql.startswith("UPDATE") and "buffer_bucket" in sql:
            statements.append(sql)
            if len(statements) > 1:
                race(lambda: arrival(stream, f"A{len(statements)}"))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(between):
        assert levers.release([bucket.pk], ME, "counted") == 1
    assert statements
    bucket.refresh_from_db()
    assert bucket.due_at is not None or bucket.open_count == 0


def test_releases_holds_and_arrivals_at_once_leave_a_bucket_held_or_due(stream, transactional_db):
    arrival(stream, "A0")
    urge()
    claim(stream)
    ids = [Bucket.objects.get().pk]
    levers.hold(ids, ME, "stocktake")
    for number in range(1, 30, 3):
        race(
            lambda: levers.release(ids, ME, "counted"),
            lambda number=number: arrival(stream, f"A{number}"),
            lambda number=number: arrival(stream, f"A{number + 1}"),
        )
        assert Bucket.objects.get().due_at is not None
        urge()
        claim(stream)
        levers.hold(ids, ME, "stocktake")


def test_the_suite_really_uses_connections_of_its_own(transactional_db):
    ids = race(lambda: id(connection.connection or connection.connect() or connection.connection), lambda: 0)
    assert ids[0] != id(connection.connection)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite takes one transaction at a time")
def test_a_round_locks_the_orders_of_its_own_warehouses_only(ingest, records, stream):
    """MariaDB and MySQL lock what they pass; of few warehouses their own choice of an index passes all."""
    ingest(records(*(order(f"A{n}", f"WH-{n % 10}") for n in range(200))))
    buckets = list(Bucket.objects.order_by("location_id").values_list(*Candidate._fields))
    mine, theirs = ([Candidate._make(row) for row in part] for part in (buckets[:4], buckets[4:]))

    def events_of(part: list[Candidate]) -> int:
        with transaction.atomic():
            return sum(map(len, _open_events(stream, part).values()))

    with transaction.atomic():
        assert sum(map(len, _open_events(stream, mine).values())) == 80
        assert race(lambda: events_of(theirs)) == [120]
