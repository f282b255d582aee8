"""What an owner tells the read model: again, until it was taken."""

from __future__ import annotations

from datetime import timedelta

import pytest

from config.database.clock import database_now
from config.kafka import topic_name
from config.kafka.transactional_producer import FencedInstance
from outbox.bookkeeping.models import Watermark
from outbox.letters.models import DeadLetter
from tests.throttler.worker.bench import Bench
from throttler.engine.output_transaction import INPUT
from throttler.engine.row_writer import GROUP
from throttler.lanes.read_model import take_name
from throttler.models import Lane, LaneOwner, LanePartition
from throttler.worker.database_sync import DatabaseSync

pytestmark = pytest.mark.django_db


def test_a_first_report_that_was_refused_is_told_again_as_the_first(settings):
    """A group that was forgotten counts its generations anew: after a minute of silence the read model is taken over."""
    bench = Bench(settings)
    sync = DatabaseSync(bench.owner, "a", transactions=True)
    now = database_now()
    place = {"number": 0, "position": 0, "decided": 0, "read": 0, "updated_at": now}
    LanePartition.objects.create(epoch=40, process="before", **place)
    bench.adopt()
    bench.turn()

    def told():
        (found,) = bench.owner.snapshot.take(bench.context.parts.values(), 0)
        sync._write(found, now)
        bench.turn()
        return LanePartition.objects.get().process

    assert told() == "before"
    LanePartition.objects.update(updated_at=now - timedelta(seconds=61))
    assert told() == "p"


def test_what_was_stored_since_the_last_report_is_told_with_the_next(settings):
    """Otherwise rows seem to be on their way for ever, and `verify` misses none of them."""
    bench = Bench(settings)
    bench.adopt()
    bench.arrive(range(30))
    bench.turn()

    def told():
        (found,) = bench.owner.snapshot.take(bench.context.parts.values(), bench.clock.now())
        return [(lane.backlog, lane.waits) for lane in found.lanes]

    assert told() == [(20, 20)]
    bench.store.store()
    bench.turn()
    assert (told(), told()) == ([(20, 0)], [])


@pytest.mark.parametrize(
    ("epoch", "process", "silent", "told"),
    [
        (6, "heir", 0, 0),  # of the next generation
        (5, "heir", 0, 0),  # under our name
        (5, "before", 0, 1),  # who had our name before we took it
        (4, "before", 0, 1),
        (6, "heir", 61, 1),  # of a group that was forgotten since, and counts from 1 again
    ],
)
def test_an_owner_of_the_past_raises_no_alarm(settings, epoch, process, silent, told):
    sync = DatabaseSync(Bench(settings).owner, "a", transactions=True)
    now = database_now()
    values = {"topic_id": "t", "position": 3, "decided": 3, "read": 3, "updated_at": now - timedelta(seconds=silent)}
    LanePartition.objects.create(number=0, epoch=epoch, process=process, **values)
    take_name("a", True, now, "heir" if process == "heir" else "p")
    sync.alarms[0] = ("it was truncated", 5)
    sync._sound()
    assert DeadLetter.objects.count() == Watermark.objects.exclude(alarm="").count() == told
    assert (0 in sync.alarms) == (not told), "it waits until the partition is known to be somebody else's"


def test_a_partition_that_stops_before_it_was_ever_reported_says_so_and_a_known_one_stays_where_it_was(settings):
    sync = DatabaseSync(Bench(settings).owner, "a", transactions=True)
    group, topic, now = topic_name(GROUP), topic_name(INPUT), database_now()
    Watermark.objects.create(group=group, topic=topic, partition=1, topic_id="t", next_offset=9, updated_at=now)
    sync.alarms |= {0: ("its offset has no changelog", 1), 1: ("another topic", 1)}
    sync._sound()
    told = Watermark.objects.of_group(GROUP).order_by("partition").values_list("next_offset", "topic_id", "alarm")
    assert list(told) == [(0, "", "its offset has no changelog"), (9, "t", "another topic")]
    assert DeadLetter.objects.filter(step="position").count() == 2


@pytest.mark.parametrize("fenced", [False, True])
def test_who_was_fenced_reports_nothing(settings, fenced):
    bench = Bench(settings)
    sync = DatabaseSync(bench.owner, "a", transactions=True)
    bench.adopt()
    bench.turn()
    bench.owner.want_snapshot()
    bench.turn()
    if fenced:
        bench.owner.member = bench.owner.metadata
        bench.owner._refusal = bench.owner.metadata, FencedInstance("another member is a of throttler")
    sync._report()
    assert LanePartition.objects.count() == LaneOwner.objects.count() == (not fenced)


def test_what_the_database_did_not_take_is_told_again_with_all_that_waits(settings, monkeypatch):
    """It may have come back from a backup meanwhile."""
    bench = Bench(settings)
    sync = DatabaseSync(bench.owner, "a", transactions=True)
    bench.adopt()
    bench.arrive(range(11))

    def report():
        bench.turn()
        bench.owner.want_snapshot()
        bench.turn()
        sync._report()

    report()
    with monkeypatch.context() as away:
        away.setattr(sync, "_write", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            report()
    Lane.objects.all().delete()
    report()
    assert Lane.objects.get().backlog == 1
