"""Replays asked for in the admin: picked up, resumed after a crash, cancelled; beside a running consumer."""

import threading
import uuid
from contextlib import closing
from datetime import timedelta

import pytest
from django.db import OperationalError, connection

from buffer.events.models import BufferedEvent
from buffer.ingest.handler import Ingest
from buffer.verify import checks
from buffer.workers import ingest as consume
from config.admin.levers import Operator
from config.database.clock import database_now
from config.kafka import client
from config.letters import Refusal
from outbox.audit_log.models import OperatorAction
from outbox.bookkeeping.models import Watermark
from outbox.models import TopicReplay
from outbox.topic_replay import requests, run
from outbox.topic_replay.models import LEASE
from outbox.topic_replay.run import ReplayWorker, carry_out
from tests.conftest import order
from tests.crash.wire import wait_for
from tests.outbox.topic_replay.conftest import DAY

pytestmark = pytest.mark.django_db(transaction=True)
STREAM, ANNA = "transfer-requests", Operator("Anna")


def ask(*, dry_run=False, token=None):
    return requests.request(
        STREAM, DAY, DAY + timedelta(days=1), timedelta(hours=1), ANNA, "a bug", dry_run=dry_run, token=token
    )


def work(stop=None):
    ReplayWorker(stop or threading.Event()).run(once=True)


def beside(function, *arguments):
    """On a thread that closes its connection."""

    def run():
        try:
            function(*arguments)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.fixture
def orders(produce):
    produce(*[(DAY + timedelta(minutes=n), order(f"A{n:02}")) for n in range(40)])


def test_the_worker_carries_out_what_was_asked_for_in_order(orders):
    rehearsal, real = ask(dry_run=True), ask()
    work()
    rehearsal.refresh_from_db()
    real.refresh_from_db()
    assert (rehearsal.state, rehearsal.applied, rehearsal.total) == ("done", 40, 40)
    assert (real.state, real.applied, real.looked_at, real.lease_token) == ("done", 40, 40, None)
    assert BufferedEvent.objects.count() == 40
    assert not Watermark.objects.filter(next_offset__gt=0).exists()


def test_a_worker_that_dies_costs_nothing(orders, settings, monkeypatch):
    """Counts and position stand with the data: the next worker goes on behind the last batch."""
    settings.KAFKA_POLL_RECORDS = 10
    replay = ask()
    stop, original = threading.Event(), Ingest.write

    def dying(self, batch, now):
        if batch.records[0].offset >= 20:
            stop.set()
            raise RuntimeError("killed")
        original(self, batch, now)

    token = uuid.uuid4()
    assert TopicReplay.objects.begin(replay.pk, token, database_now())
    replay.refresh_from_db()
    with monkeypatch.context() as patch:
        patch.setattr(Ingest, "write", dying)
        patch.setattr(Ingest, "park", lambda *_: (_ for _ in ()).throw(RuntimeError("killed")))
        assert not carry_out(replay, token, stop)
    replay.refresh_from_db()
    assert (replay.state, replay.applied, replay.positions) == ("running", 20, {"0": 20})
    work()
    assert TopicReplay.objects.get().state == "running"  # its lease still runs
    TopicReplay.objects.update(lease_until=database_now() - LEASE)
    work()
    replay.refresh_from_db()
    assert (replay.state, replay.read, replay.applied, replay.already) == ("done", 40, 40, 0)
    assert [check for check in checks([STREAM]) if not check.ok] == []


def test_a_cancelled_replay_stops_and_what_it_was_about_to_store_is_not_stored(orders, settings, monkeypatch):
    settings.KAFKA_POLL_RECORDS = 10
    replay, original = ask(), Ingest.prepare

    def cancelling(self, batch):
        if batch.records[0].offset == 20:
            requests.cancel([replay.pk], ANNA, "enough")
        return original(self, batch)

    monkeypatch.setattr(Ingest, "prepare", cancelling)
    work()
    replay.refresh_from_db()
    assert (replay.state, replay.applied) == ("cancelled", BufferedEvent.objects.count())
    assert replay.applied <= 20
    assert OperatorAction.objects.order_by("-pk").first().result == "cancelled"
    work()
    assert BufferedEvent.objects.count() == replay.applied


def test_a_worker_whose_lease_was_taken_over_stores_nothing(orders, monkeypatch):
    replay, token = ask(), uuid.uuid4()
    assert TopicReplay.objects.begin(replay.pk, token, database_now())
    replay.refresh_from_db()
    original = Ingest.prepare

    def slow(self, batch):
        TopicReplay.objects.update(lease_token=uuid.uuid4())
        return original(self, batch)

    monkeypatch.setattr(Ingest, "prepare", slow)
    assert not carry_out(replay, token, threading.Event())
    assert not BufferedEvent.objects.exists()


def test_a_worker_that_fails_after_it_was_replaced_does_not_end_the_replay(orders, monkeypatch):
    """It was frozen past its lease, and what it then finds is no news of the replay that its successor carries out."""
    replay, successor = ask(), uuid.uuid4()

    def frozen(*arguments):
        TopicReplay.objects.update(lease_token=successor)
        raise Refusal("the topic is gone")

    monkeypatch.setattr(run, "refuse_gap", frozen)
    work()
    replay.refresh_from_db()
    assert (replay.state, replay.lease_token, replay.note) == ("running", successor, "")
    assert not OperatorAction.objects.filter(result__startswith="failed").exists()


@pytest.mark.parametrize("step", ["_begin", "_finish"])
def test_a_worker_that_is_frozen_past_its_lease_neither_begins_nor_ends_the_replay_of_its_successor(
    orders, monkeypatch, step
):
    replay, token, original = ask(), uuid.uuid4(), getattr(run, step)
    theirs = {"lease_token": uuid.uuid4(), "total": 7, "positions": {"0": 3}, "bounds": {"0": [0, 7]}}

    def frozen(*arguments):
        TopicReplay.objects.update(**theirs)
        return original(*arguments)

    assert TopicReplay.objects.begin(replay.pk, token, database_now())
    replay.refresh_from_db()
    monkeypatch.setattr(run, step, frozen)
    assert not carry_out(replay, token, threading.Event())
    replay.refresh_from_db()
    assert replay.state == "running"
    assert {name: getattr(replay, name) for name in theirs} == theirs


@pytest.mark.parametrize("behind", ["begin", "refuse_gap"])
def test_a_worker_whose_database_goes_away_waits_for_no_lease_of_its_own(orders, monkeypatch, behind):
    """The answer to the lease's commit is lost, or the session breaks later: the next round goes on at once."""
    replay, lost = ask(), []
    place = TopicReplay.objects.__class__ if behind == "begin" else run
    original = getattr(place, behind)

    def broken(*arguments):
        done = original(*arguments)
        if not lost:
            lost.append(behind)
            raise OperationalError(2013, "Lost connection to server during query")
        return done

    monkeypatch.setattr(place, behind, broken)
    work()
    replay.refresh_from_db()
    assert lost
    assert (replay.state, replay.applied, replay.lease_token) == ("done", 40, None)


def test_a_running_consumer_and_a_replay_do_not_disturb_each_other(produce, orders, topic):
    stop = threading.Event()
    consumer = beside(consume, None, stop)
    try:
        for start in range(100, 400, 100):
            produce(*[(DAY + timedelta(seconds=n), order(f"B{n}")) for n in range(start, start + 100)])
            ask()
            work()
        for _ in range(300):
            if BufferedEvent.objects.count() == 340:
                break
            stop.wait(0.1)
    finally:
        stop.set()
        consumer.join()
    consume([STREAM], threading.Event(), once=True)
    assert BufferedEvent.objects.count() == 340
    assert TopicReplay.objects.filter(state="done").count() == 3
    assert Watermark.objects.get(partition=0).next_offset == 340
    assert [check for check in checks([STREAM]) if not check.ok] == []


def test_a_replay_waits_while_the_buffer_is_full(produce, read_all, orders, settings):
    read_all()
    produce(*[(DAY + timedelta(hours=1, minutes=n), order(f"B{n:02}")) for n in range(40)])
    settings.BUFFER_HIGH_WATER = 30
    settings.KAFKA_POLL_RECORDS = 10
    replay, stop = ask(), threading.Event()
    worker = beside(work, stop)
    try:
        for _ in range(150):
            replay.refresh_from_db()
            if replay.note:
                break
            stop.wait(0.1)
        assert "is full" in replay.note
    finally:
        stop.set()
        worker.join()
    replay.refresh_from_db()
    assert (replay.state, replay.lease_token) == ("running", None)
    assert replay.applied == BufferedEvent.objects.count() - 40 < 40


def test_a_restored_database_is_not_replayed_before_its_consumer_has_caught_up(orders, read_all):
    read_all()
    Watermark.objects.update(next_offset=5)
    replay = ask()
    work()
    replay.refresh_from_db()
    assert replay.state == "failed"
    assert "this database remembers less than" in replay.note


def test_a_finished_rehearsal_is_made_real_once_more_for_each_asking(orders):
    rehearsal = ask(dry_run=True)
    assert requests.apply_missing([rehearsal.pk], ANNA, "go") == 0
    work()
    assert requests.apply_missing([rehearsal.pk], ANNA, "go") == 1
    work()
    assert TopicReplay.objects.order_by("-pk").first().applied == 40


@pytest.fixture
def beforehand(monkeypatch):
    """Let something happen behind the first batch of partition 0, before partition 1 is read."""

    def do(act):
        original = Ingest.prepare

        def prepare(self, batch):
            monkeypatch.setattr(Ingest, "prepare", original)
            act()
            return original(self, batch)

        monkeypatch.setattr(Ingest, "prepare", prepare)

    return do


def test_a_replay_fails_when_records_are_removed_before_it_reads_them(orders, produce, topic, broker, beforehand):
    produce(*[(DAY + timedelta(minutes=n), order(f"B{n:02}")) for n in range(20)], partition=1)

    def remove():
        if broker is not None:
            broker.delete_records(topic, 1, 10)
            return
        with closing(client.new_admin()) as admin:
            admin.delete_records({client.TopicPartition(topic, 1): 10})

    beforehand(remove)
    replay = ask()
    work()
    replay.refresh_from_db()
    assert (replay.state, replay.applied) == ("failed", 40)
    assert replay.note == f"{topic}/1: records were removed before they were read"


@pytest.mark.parametrize("broker", ["kafka"], indirect=True)
def test_a_topic_that_is_created_again_is_not_replayed_as_the_old_one(orders, produce, topic, make_topic, beforehand):
    produce(*[(DAY + timedelta(minutes=n), order(f"B{n:02}")) for n in range(20)], partition=1)

    def make_again():
        with closing(client.new_admin()) as admin:
            admin.delete_topics([topic])
            wait_for(lambda: topic not in admin.list_topics(), 30, "the topic to be gone")
        make_topic(STREAM, 2)
        produce(*[(DAY + timedelta(minutes=n), order(f"C{n:02}")) for n in range(20)], partition=1)

    beforehand(make_again)
    replay = ask()
    work()
    replay.refresh_from_db()
    assert (replay.state, replay.applied) == ("failed", 40)
    assert "was created again while it was read" in replay.note
    assert not BufferedEvent.objects.filter(order_id__startswith="C").exists()
