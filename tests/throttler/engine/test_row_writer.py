"""Rows and letters through the real writer into the database, and pages back."""

from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import OperationalError, transaction

from config.database.clock import database_now
from config.kafka import RecordBatch, Replayed
from config.kafka.consumer.writer import Writer
from outbox.letters.burial import Letter
from outbox.models import DeadLetter, Watermark
from throttler.engine import row_writer
from throttler.engine.drain import PageReader
from throttler.engine.row_writer import NoPositions, RowHandler, ToStore, WriterQueue
from throttler.models import OverflowMessage
from throttler.overflow.django import DjangoStore
from throttler.overflow.store import LaneRange, OverflowRow

pytestmark = pytest.mark.django_db(transaction=True)
CREATED = 1_790_000_000_000_000


@pytest.fixture
def writer():
    handler = RowHandler(DjangoStore())
    with closing(Writer(handler, NoPositions(), "throttler")) as started:
        yield started


@pytest.fixture
def today():
    return database_now().date()


def stowed(offset, day=None, customer="acme", letter=None):
    record = Replayed("notifications-in", 3, offset, CREATED // 1000, b"k", b'{"notification_id": "n"}')
    row = None if letter else OverflowRow(3, customer, "t", offset, day, b"{}", b"", CREATED, 0, "n")
    return ToStore.of(record, row, Letter("throttler", "decode", "empty", letter, record, "t") if letter else None)


def store(writer, *found):
    assert writer.submit(RecordBatch(found, {"notifications-in": "t"}), 1, timeout=10)
    assert writer.drain(30)


def offsets():
    return sorted(OverflowMessage.objects.values_list("offset", flat=True))


def test_rows_and_letters_of_a_batch_are_stored_together_and_once(writer, today):
    for _ in range(2):
        store(writer, stowed(1, today), stowed(2, letter="no value"), stowed(3, today))
    assert offsets() == [1, 3]
    assert [letter.offset for letter in DeadLetter.objects.all()] == [2]
    assert writer.done.get().ends == {("notifications-in", 3): 4}
    assert not Watermark.objects.exists()


def test_a_row_that_the_store_refuses_becomes_a_letter_and_holds_up_nothing(writer, today, monkeypatch):
    monkeypatch.setattr(writer.handler, "store", Picky())
    store(writer, stowed(1, today), stowed(2, today), stowed(3, today))
    assert offsets() == [1, 3]
    (letter,) = DeadLetter.objects.all()
    assert (letter.offset, letter.reason, letter.business_key) == (2, "database_refused", "n")
    assert writer.handler.refused.get(timeout=1).offset == 2


def test_a_row_counts_as_refused_when_its_letter_is_there(writer, today):
    record = stowed(2, today)
    with pytest.raises(OperationalError), transaction.atomic():
        writer.handler.park(RecordBatch([record], {}), record, ValueError("offset 2"), "", database_now())
        raise OperationalError("gone before the commit")
    assert writer.handler.refused.empty()


class Picky(DjangoStore):
    """Refuses the row at offset 2, as a column that is too short would."""

    def store(self, rows):
        if any(row.offset == 2 for row in rows):
            raise ValueError("offset 2")
        super().store(rows)


def test_pages_come_back_in_the_order_asked(writer, today):
    store(writer, *(stowed(offset, today) for offset in (5, 6, 7)))
    ranges = [
        LaneRange(3, "acme", "t", 5, 7, today, 10), LaneRange(3, "nobody", "t", 0, 9, today - timedelta(days=1), 10)
    ]  # fmt: skip
    with closing(PageReader(DjangoStore())) as reader:
        reader.ask(ranges)
        first, second = reader.pages.get(timeout=20), reader.pages.get(timeout=20)
    assert ([row.offset for row in first.rows], second.rows) == ([6, 7], [])
    assert [first.asked, second.asked] == ranges


def test_a_store_that_fails_answers_nothing_and_the_next_question_is_answered(writer, today, monkeypatch):
    store(writer, stowed(5, today))
    asked = [LaneRange(3, "acme", "t", 0, 9, today, 10)]
    with closing(PageReader(DjangoStore())) as reader:
        with monkeypatch.context() as broken:
            broken.setattr(reader.store, "read", lambda _ranges: 1 / 0)
            reader.ask(asked)
            assert reader.pages.get(timeout=20).count is None
        reader.ask(asked)
        assert len(reader.pages.get(timeout=20).rows) == 1


def test_a_round_is_stored_once_the_rows_of_all_its_partitions_are(monkeypatch, today):
    """Of a partition its oldest row holds the offset back, wherever that stood in the round."""
    monkeypatch.setattr(row_writer, "MOST", 2)
    proven = []
    waiting = WriterQueue(SimpleNamespace(busy=False, submit=lambda _batch, upto, timeout: proven.append(upto)))
    other = replace(stowed(5, today), partition=4)
    batches = waiting.put([stowed(9, today), stowed(7, letter="no value"), other])
    assert [(number, batch.first, batch.last) for number, batch in batches] == [(3, 7, 9), (4, 5, 5)]
    waiting.push()
    assert (proven, waiting.busy) == ([0], True)
    waiting.push()
    assert (proven, waiting.busy) == ([0, 1], False)
