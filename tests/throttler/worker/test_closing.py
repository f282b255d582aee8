"""A process that is told to end does so within ten seconds, whoever does not answer it."""

import threading
import time
from datetime import date
from types import SimpleNamespace

import pytest
from django.db import OperationalError

from config.kafka import RecordBatch, Replayed
from config.kafka.consumer.writer import Writer
from throttler.engine.drain import PageReader
from throttler.engine.repair import Rereader, Suspect
from throttler.engine.row_writer import NoPositions, RowHandler, ToStore, WriteBehind
from throttler.overflow.django import DjangoStore
from throttler.overflow.store import LaneRange, OverflowRow
from throttler.worker.consumer_backend import OwnerBackend

DAY = date(2026, 11, 24)
LANE = LaneRange(0, "a", "t", 0, 9, DAY, 10)
ROW = OverflowRow(0, "a", "t", 1, DAY, b"{}", b"", 0, 0, "n")


class Hanging(DjangoStore):
    """A server that was cut off without a word: no answer, no error."""

    in_database = False

    def __init__(self):
        self.asked, self.back = threading.Semaphore(0), threading.Event()

    def hang(self, _rows):
        self.asked.release()
        self.back.wait(60)
        raise OperationalError("the connection timed out")

    store = read = counts = hang


@pytest.fixture
def store(monkeypatch):
    found = Hanging()
    monkeypatch.setattr(Rereader, "_store_again", lambda self, suspects: self.store.hang(suspects))
    yield found
    found.back.set()


def test_a_store_that_hangs_keeps_nobody_for_long(store):
    pages, rereader = PageReader(store), Rereader(store)
    writer = Writer(RowHandler(store), NoPositions(), "throttler")
    pages.ask([LANE])
    rereader.ask([Suspect(LANE, 1, False)])
    writer.submit(RecordBatch([ToStore.of(Replayed("in", 0, 1, 0, b"k", b"{}"), row=ROW)], {}), 1, timeout=1.0)
    for _ in range(3):
        assert store.asked.acquire(timeout=30)
    done = SimpleNamespace(close=lambda **_patience: None)
    owner = SimpleNamespace(
        close=done.close, pages=pages, repairs=SimpleNamespace(rereader=rereader), write_behind=WriteBehind(writer)
    )
    began = time.monotonic()
    OwnerBackend(owner, done, "in").close()
    assert time.monotonic() - began < 5
