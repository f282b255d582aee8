"""A restored database reads a gap again: what was sent is settled on the way, and workers never deadlock."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction

from buffer.events.models import Bucket, BufferedEvent
from buffer.ingest import handler as ingesting
from buffer.ingest.after_restore import Regain, SentOrders, Version
from buffer.ingest.handler import Ingest
from config.database.clock import database_now
from config.kafka import RecordBatch
from outbox.bookkeeping import counters
from outbox.letters.models import DeadLetter
from tests.conftest import TOPIC_ID, order
from tests.outbox.race import race

pytestmark = pytest.mark.django_db(transaction=True)
EVENTS, BUCKETS, LETTERS, COUNTERS = range(4)
RANKS = {
    "buffer_bufferedevent": EVENTS, "buffer_bucket": BUCKETS, "outbox_burialkey": LETTERS,
    "outbox_failuregroup": LETTERS, "outbox_deadletter": LETTERS, "outbox_flowcounter": COUNTERS,
    "outbox_flowminute": COUNTERS, "outbox_grouphour": LETTERS, "outbox_groupquota": LETTERS,
}  # fmt: skip


@pytest.fixture
def again(stream, records):
    """A reader of a gap: A1 was sent as it stands, A2 before its change, A3 and A4 never."""
    found = records(
        order("A1", "WH-1"), order("A2", "WH-2"), order("A2", "WH-2", items={"S1": 7}), order("A3", "WH-1"),
        order("A4", "WH-3"), b"{poison",
    )  # fmt: skip
    handler = Ingest(stream)
    sent = {
        ("A1", "WH-1"): Version(uuid.uuid4(), 0, found[0].offset),
        ("A2", "WH-2"): Version(uuid.uuid4(), 0, found[1].offset),
    }
    batch = RecordBatch(found, {found[0].topic: TOPIC_ID})
    handler.regaining = Regain(SentOrders(sent), dict(batch.ends))
    batch.prepared = handler.prepare(batch)
    return handler, batch


def write(handler: Ingest, batch: RecordBatch) -> None:
    with transaction.atomic():
        handler.write(batch, database_now())


def statuses() -> dict[str, str]:
    return dict(BufferedEvent.objects.values_list("order_id", "status"))


def assert_settled() -> None:
    assert statuses() == {"A1": "sent", "A2": "sent", "A3": "pending", "A4": "pending"}
    assert dict(Bucket.objects.values_list("location_id", "open_count")) == {"WH-1": 1, "WH-2": 0, "WH-3": 1}
    assert counters.totals("transfer-requests")["open"] == 2
    assert sorted(DeadLetter.objects.values_list("reason", flat=True)) == ["invalid_json", "late_event"]


def test_what_was_sent_is_settled_and_its_change_is_late(again):
    handler, batch = again
    write(handler, batch)
    assert_settled()
    assert handler.regaining is None, "the gap is closed"


def test_of_a_topic_that_was_created_again_nothing_was_sent(again):
    handler, batch = again
    handler.regaining.topic_id = "the topic of before"
    write(handler, batch)
    assert set(statuses().values()) == {"pending"}


def test_a_batch_that_is_run_again_still_knows_what_was_sent(again):
    handler, batch = again
    with pytest.raises(RuntimeError), transaction.atomic():
        handler.write(batch, database_now())
        raise RuntimeError("a deadlock, say")
    assert statuses() == {}
    write(handler, batch)
    assert_settled()


def test_rows_that_workers_share_come_last_and_each_kind_once(again):
    handler, batch = again
    ranks: list[int] = []

    def note(run: Any, sql: str, *rest: Any) -> Any:
        # The rows a statement locks or changes are those of the first table it names.
        named = re.search(r"[`\"]((?:buffer|outbox)_[a-z]+)", sql)
        if named and ("SELECT" not in sql[:6] or "FOR UPDATE" in sql):
            ranks.append(RANKS[named[1]])
        return run(sql, *rest)

    with connection.execute_wrapper(note):
        write(handler, batch)
    assert set(ranks) == {EVENTS, BUCKETS, LETTERS, COUNTERS}
    assert ranks == sorted(ranks)


def test_two_writers_close_their_gaps_at_once(stream, records):
    """Each reads its partition again; the warehouse is the same, and so is what they know of what was sent."""
    handler = Ingest(stream)
    batches = []
    handler.regaining = regaining = Regain(SentOrders(), {})
    for partition, name in enumerate("AB"):
        found = records(*(order(f"{name}{n}", "WH-1") for n in range(20)), partition=partition)
        for n in range(5):
            regaining.sent.versions[f"{name}{n}", "WH-1"] = Version(uuid.uuid4(), partition, found[n].offset)
        batches.append(RecordBatch(found, {found[0].topic: TOPIC_ID}))
    for batch in batches:
        regaining.gaps.update(batch.ends)
        batch.prepared = handler.prepare(batch)
    race(*(partial(write, handler, batch) for batch in batches))
    assert Counter(statuses().values()) == {"sent": 10, "pending": 30}
    assert {order_id for order_id, status in statuses().items() if status == "sent"} == {
        pk for pk, _ in regaining.sent.versions
    }
    assert Bucket.objects.get().open_count == counters.totals("transfer-requests")["open"] == 30
    assert (regaining.gaps, handler.regaining) == ({}, None)


def test_a_further_gap_is_closed_beside_those_that_are_known(stream, monkeypatch):
    """A batch under way may close one of them: it has the same gaps in hand."""
    monkeypatch.setattr(ingesting, "read_sent", lambda *_: SentOrders())
    handler = Ingest(stream)
    handler.regain({"transfer-requests": TOPIC_ID}, {("transfer-requests", 0): 5})
    under_way = handler.regaining.gaps
    handler.regain({"transfer-requests": TOPIC_ID}, {("transfer-requests", 1): 9})
    assert handler.regaining.gaps is under_way
    assert under_way == {("transfer-requests", 0): 5, ("transfer-requests", 1): 9}
