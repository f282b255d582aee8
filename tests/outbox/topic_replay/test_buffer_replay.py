"""`replay_topic` on the aggregator's topic: only what is missing is applied, and the account is exact."""

from datetime import timedelta

import pytest
from django.core.management import CommandError

from buffer.events.models import Bucket, BufferedEvent
from buffer.verify import checks
from config.database.clock import database_now
from outbox.audit_log.models import OperatorAction
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import Watermark
from outbox.letters.models import DeadLetter
from outbox.models import TopicReplay
from tests.conftest import order
from tests.outbox.topic_replay.conftest import DAY

pytestmark = pytest.mark.django_db(transaction=True)
STREAM = "transfer-requests"


@pytest.fixture(autouse=True)
def _everything_adds_up(topic, db):  # while the prefix of its topics holds
    yield
    assert [check for check in checks([STREAM]) if not check.ok] == []


def hours(number):
    return DAY + timedelta(hours=number)


def events():
    fields = ["order_id", "payload", "status", "source_partition", "source_offset", "revision"]
    return sorted(BufferedEvent.objects.values_list(*fields))


def forget(*order_ids):
    """As if the rows had never been stored; counters and buckets follow, so that everything adds up."""
    rows = BufferedEvent.objects.filter(order_id__in=order_ids)
    number = rows.count()
    for row in rows:
        bucket = Bucket.objects.get(location_id=row.location_id)
        bucket.open_count -= 1
        bucket.save()
    rows.delete()
    now = database_now()
    counters.add({(STREAM, "0", "accepted"): -number, (STREAM, "0", "open"): -number,
                  (STREAM, "0", "read"): -number}, now)  # fmt: skip


@pytest.fixture
def day(produce, read_all):
    """Ten orders over two partitions, one of them repeated, one updated, one poisoned record; all read."""
    produce(*[(hours(n), order(f"A{n}", "WH-1")) for n in range(5)])
    produce((hours(5), order("A0", "WH-1", items={"S1": 9})), (hours(6), b"\xff poison"))
    produce(*[(hours(n), order(f"B{n}", "WH-2")) for n in range(5)], (hours(7), order("B4", "WH-2")), partition=1)
    read_all()


def test_a_topic_that_was_read_wholly_is_replayed_twice_without_a_change(day, replay):
    before = events(), list(Watermark.objects.values()), DeadLetter.objects.count()
    account = {"read": 13, "already applied": 13, "applied": 0, "parked": 0, "older than retention": 0}
    assert replay() == account
    assert replay() == account
    assert (events(), list(Watermark.objects.values()), DeadLetter.objects.count()) == before
    assert counters.totals(STREAM)["replayed"] == 26
    assert counters.totals(STREAM)["parked"] == 1


def test_what_is_missing_is_restored_exactly(day, replay):
    before = [row[:5] for row in events()]
    forget("A1", "A2", "B3")
    assert replay(dry_run=True)["applied"] == 3
    assert len(events()) == len(before) - 3
    assert replay() | {"read": 0} == {
        "read": 0, "already applied": 10, "applied": 3, "parked": 0, "older than retention": 0,
    }  # fmt: skip
    assert [row[:5] for row in events()] == before
    assert replay()["applied"] == 0


def test_only_the_timeframe_is_read_and_its_end_is_not_in_it(day, replay):
    assert replay(hours(1), hours(3))["read"] == 4
    assert replay(hours(6), hours(7)) == {
        "read": 1, "already applied": 1, "applied": 0, "parked": 0, "older than retention": 0,
    }  # fmt: skip


def test_an_old_record_never_overwrites_a_newer_one(day, replay):
    forget("A1")
    newest = [row for row in events() if row[0] == "A0"]
    replay(hours(0), hours(2))  # holds the first version of A0, not the second
    assert [row for row in events() if row[0] == "A0"] == newest


def test_poison_is_parked_once(produce, replay, read_all):
    produce((hours(1), b"\xff poison"), (hours(2), order("A1")))
    assert replay(dry_run=True)["parked"] == 1
    assert not DeadLetter.objects.exists()
    assert replay() == {"read": 2, "already applied": 0, "applied": 1, "parked": 1, "older than retention": 0}
    assert replay()["already applied"] == 2
    read_all()
    assert DeadLetter.objects.count() == 1


def test_timestamps_need_not_rise(produce, replay, broker):
    """A record of the day behind one of the next day is found within the slack; a broker that cannot search finds all."""
    produce((hours(23), order("A1")), (hours(24.5), order("A2")), (hours(22), order("A3")))
    produce((hours(26), order("B1")), (hours(20), order("B2")), partition=1)
    searches = broker is None
    assert replay(slack="0s", dry_run=True)["read"] == (1 if searches else 3)
    assert replay(slack="1h", dry_run=True)["read"] == (2 if searches else 3)
    assert replay(slack="3h")["read"] == 3
    assert sorted(row[0] for row in events()) == ["A1", "A3", "B2"]


def test_a_dry_run_does_not_count_twice_what_comes_in_two_batches(produce, replay, settings):
    settings.KAFKA_POLL_BYTES = 1  # every record a batch of its own
    produce((hours(1), order("A1")), (hours(2), order("A1")), (hours(3), order("A1", items={"S1": 5})))
    produce((hours(0.5), order("A1")), partition=1)  # in another partition and older
    rehearsal = replay(dry_run=True)
    assert not events()
    assert replay() == rehearsal
    assert rehearsal["already applied"] == 1


def test_what_is_older_than_retention_is_counted_and_not_buried(produce, replay):
    produce((hours(1), order("A1", at="2001-01-01T00:00:00Z")), (hours(2), order("A2")))
    assert replay(dry_run=True) == replay()
    assert replay() == {"read": 2, "already applied": 1, "applied": 0, "parked": 0, "older than retention": 1}
    assert not DeadLetter.objects.exists()


def test_a_record_the_database_refuses_is_parked_alone(produce, replay, monkeypatch):
    from django.db import DataError

    from buffer.ingest.handler import Ingest

    original = Ingest.write

    def refusing(self, batch, now):
        if any(b"A2" in (record.value or b"") for record in batch.records):
            raise DataError("value out of range")
        original(self, batch, now)

    monkeypatch.setattr(Ingest, "write", refusing)
    produce(*[(hours(n), order(f"A{n}")) for n in range(5)])
    rehearsal = replay(dry_run=True)
    assert replay() == rehearsal
    assert (rehearsal["applied"], rehearsal["parked"]) == (4, 1)
    assert replay()["already applied"] == 5


def test_every_refusal_is_one_line(day, replay):
    for options, words in [
        ({"name": "nobody"}, "no flow replays this topic (known: "),
        ({"until": DAY - timedelta(days=1)}, "is not before the end"),
        ({"since": DAY - timedelta(days=30), "until": DAY - timedelta(days=29)}, "no record between"),
        ({"slack": "soon"}, "no length of time"),
        ({"from": "yesterday"}, "--from: 'yesterday' is no ISO time"),
        ({"from": "0001-01-01T00:00:00+14:00"}, "is no ISO time"),
    ]:
        with pytest.raises(CommandError, match=".*") as refused:
            replay(**options)
        assert words in str(refused.value)
        assert "\n" not in str(refused.value)


def test_a_real_run_is_in_the_trail_and_a_dry_run_is_not(day, replay):
    replay(dry_run=True)
    assert not OperatorAction.objects.exists()
    replay(reason="a bug in release 7")
    found = list(OperatorAction.objects.order_by("pk").values_list("verb", "reason", "result"))
    assert found == [("replay", "a bug in release 7", "asked for"), ("replay", "a bug in release 7", "done")]
    assert TopicReplay.objects.filter(state="done").count() == 2
