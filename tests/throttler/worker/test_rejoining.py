"""A member that lost its partitions and joined again while a transaction was in hand: that one belongs to the past."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from kafka.structs import ConsumerGroupMetadata

from config.kafka import topic_name
from config.kafka.transactional_producer import FencedInstance, RefusedByGroup, holder_of_name, remove_static_member
from tests.crash.wire import wait_for
from tests.throttler.worker.bench import Bench
from tests.throttler.worker.conftest import ids_in, ids_of, notification
from throttler.engine.output_transaction import OUTPUT
from throttler.engine.row_writer import GROUP
from throttler.worker.consumer_backend import OwnerFollower
from throttler.worker.round import OwnerRound
from throttler.worker.start import ThrottlerParts


def test_a_transaction_names_the_generation_in_which_it_was_decided(settings, monkeypatch):
    bench = Bench(settings)
    follower = OwnerFollower(bench.owner, SimpleNamespace(epoch=0, forget=lambda numbers: None), "g", "")
    named, commit = [], bench.producer.commit
    monkeypatch.setattr(
        bench.producer, "commit", lambda offsets, metadata: (named.append(metadata), commit(offsets, metadata))[1]
    )

    def assigned(generation):
        follower.assigned(set(), ConsumerGroupMetadata("g", generation, f"member-{generation}", None))

    assigned(1)
    bench.adopt()
    bench.turn()
    bench.arrive(range(3))
    rejoin = iter([lambda: (follower.released({("t", 0)}, lost=True), assigned(2))])
    # The polling thread, once the round is decided: nothing of it was heard yet.
    monkeypatch.setattr(bench.owner.write_behind, "push", lambda: next(rejoin, bool)())
    bench.turn()
    assert [metadata.generation_id for metadata in named] == [1]


def test_a_member_that_gets_another_id_is_not_taken_for_another_process(settings):
    """Thrown out while the broker was away, it is just joining again; its transaction still names the old id."""
    bench = Bench(settings)
    follower = OwnerFollower(bench.owner, SimpleNamespace(epoch=0, forget=lambda numbers: None), "g", "a")
    follower.assigned(set(), ConsumerGroupMetadata("g", 1, "old", "a"))
    bench.adopt()
    bench.turn()
    bench.arrive(range(3))
    bench.producer.fate = FencedInstance("another member is a of g")
    bench.turn()
    assert bench.owner.doubted
    parts = SimpleNamespace(database_sync=SimpleNamespace(ready=threading.Event()), owner=bench.owner)
    parts.database_sync.ready.set()
    assert not ThrottlerParts.ready(parts), "nothing is restored until the group has told who has the name"
    assert (bench.owner.failure, bench.producer.rebuilt, bench.owner.dropped.get_nowait()) == (None, 0, {0})
    follower.assigned(set(), ConsumerGroupMetadata("g", 2, "new", "a"))
    assert ThrottlerParts.ready(parts)
    bench.adopt()
    bench.arrive(range(3))
    bench.turn()
    assert bench.producer.numbers() == [0, 1, 2]


def test_nothing_is_restored_before_the_group_that_refused_us_takes_us_in_again(settings):
    """Others commit meanwhile: committed offset and changelog, read one after the other, would not fit."""
    bench = Bench(settings)
    follower = OwnerFollower(bench.owner, SimpleNamespace(epoch=0, forget=lambda numbers: None), "g", "a")
    follower.assigned(set(), ConsumerGroupMetadata("g", 1, "old", "a"))
    bench.adopt()
    bench.turn()
    bench.arrive(range(3))
    bench.producer.fate = RefusedByGroup("UnknownMemberIdError")
    bench.turn()
    parts = SimpleNamespace(database_sync=SimpleNamespace(ready=threading.Event()), owner=bench.owner)
    parts.database_sync.ready.set()
    assert (ThrottlerParts.ready(parts), bench.owner.doubted) == (False, False)
    follower.assigned(set(), ConsumerGroupMetadata("g", 2, "new", "a"))
    assert ThrottlerParts.ready(parts)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("broker", ["kafka"], indirect=True)
def test_a_named_member_that_was_thrown_out_goes_on_under_its_name(send, run, broker, settings, monkeypatch):
    """It has joined again, and the owner has not heard of it when it commits."""
    settings.KAFKA_SESSION_TIMEOUT_MS = 6000
    again, verdicts = threading.Event(), []
    transact, assigned = OwnerRound.send, OwnerFollower.assigned

    def thrown_out(self, sending, metadata):
        if self.out.live and not verdicts:
            assert remove_static_member(topic_name(GROUP), "a")
            wait_for(lambda: holder_of_name(topic_name(GROUP), "a") not in ("", metadata.member_id), 30, "another id")
        verdicts.append(transact(self, sending, metadata))
        again.set()
        return verdicts[-1]

    def late(self, partitions, metadata):
        """The client is told its new id; everybody else hears of it behind the transaction."""
        assert self.owner.member is None or again.wait(30)
        assigned(self, partitions, metadata)

    monkeypatch.setattr(OwnerRound, "send", thrown_out)
    monkeypatch.setattr(OwnerFollower, "assigned", late)
    values = [notification("one") for _ in range(5)]
    send(*values)
    run("a", until_idle=1)
    assert isinstance(verdicts[0], FencedInstance)
    assert ids_in(OUTPUT) == {"one": ids_of(values)}
