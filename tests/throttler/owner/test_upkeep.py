"""What an owner tells the mirror: again, until it was taken."""

from __future__ import annotations

from datetime import timedelta

import pytest

from config.database.clock import database_now
from tests.throttler.owner.bench import Bench
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
