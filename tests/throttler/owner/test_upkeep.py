"""What an owner tells the mirror: again, until it was taken."""

from __future__ import annotations

from datetime import timedelta

import pytest

from config.database.clock import database_now
from config.kafka import topic_name
from outbox.bookkeeping.models import Watermark
from outbox.letters.models import DeadLetter
from tests.throttler.owner.bench import Bench
from throttler.live.sending import INPUT
from throttler.live.storing import GROUP
from throttler.models import LanePartition
from throttler.owner.upkeep import Upkeep

pytestmark = pytest.mark.django_db


def test_a_first_mirror_that_was_refused_is_told_again_as_the_first(settings):
    """A group that was forgotten counts its generations anew: after a minute of silence the mirror is taken over."""
    bench = Bench(settings)
    upkeep = Upkeep(bench.owner, "a", transactions=True)
    now = database_now()
    place = {"number": 0, "position": 0, "decided": 0, "read": 0, "updated_at": now}
    LanePartition.objects.create(epoch=40, process="before", **place)
    bench.adopt()
    bench.turn()

    def told():
        (found,) = bench.owner.reflection.snapshot(bench.rules.parts.values(), 0)
        upkeep._write(found, now)
        bench.turn()
        return LanePartition.objects.get().process

    assert told() == "before"
    LanePartition.objects.update(updated_at=now - timedelta(seconds=61))
    assert told() == "p"


def test_a_partition_that_stops_before_it_was_ever_mirrored_says_so_and_a_known_one_stays_where_it_was(settings):
    upkeep = Upkeep(Bench(settings).owner, "a", transactions=True)
    group, topic, now = topic_name(GROUP), topic_name(INPUT), database_now()
    Watermark.objects.create(group=group, topic=topic, partition=1, topic_id="t", next_offset=9, updated_at=now)
    upkeep.alarms.put({(topic, 0): "its offset has no changelog", (topic, 1): "another topic"})
    upkeep._sound()
    told = Watermark.objects.of_group(GROUP).order_by("partition").values_list("next_offset", "topic_id", "alarm")
    assert list(told) == [(0, "", "its offset has no changelog"), (9, "t", "another topic")]
    assert DeadLetter.objects.filter(step="position").count() == 2
