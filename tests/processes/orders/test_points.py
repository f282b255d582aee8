"""SIGKILL, and a lost answer, at every point between a transaction and the broker."""

from __future__ import annotations

from typing import Any

import pytest

from buffer.events.models import Batch, BufferedEvent
from outbox.letters.models import DeadLetter
from tests.conftest import order
from tests.crash.platform import Platform, Worker
from tests.crash.wire import wait_for
from tests.processes.conftest import Broker, assert_verified

pytestmark = pytest.mark.parametrize("broker", ["kafka"], indirect=True)
PLACES = 5


def sabotaged(workers: Platform, point: str, action: str, command: str, writers: int = 1) -> Worker:
    """With one writer it is known what else the process was doing: nothing."""
    program = ["-m", "tests.processes.saboteur", point, action, command]
    return workers.launch(program, f"{command}-{point}-{action}", {"KAFKA_WRITERS": str(writers)})


def wave(number: int) -> list[bytes]:
    """Ten new orders, one of them again, one changed, and a record that is none."""
    values = [order(f"A{number}{n}", f"WH-{n % PLACES}") for n in range(10)]
    return [*values, values[0], order(f"A{number}1", "WH-1", items={"S1": 5}), b"{poison %d" % number]


def names(waves: int) -> list[str]:
    return [f"A{number}{n}" for number in range(waves) for n in range(10)]


@pytest.mark.parametrize("writers", [1, 2])
def test_an_ingester_that_dies_anywhere_stores_every_record_once(
    broker: Broker, workers: Platform, writers: int
) -> None:
    lives, stored = [("written", "kill"), ("stored", "kill"), ("written", "lose")], 0
    for number, (point, action) in enumerate(lives):
        broker.send(*wave(number))
        ingest = sabotaged(workers, point, action, "ingest_events", writers)
        if action == "kill":
            assert ingest.end(40) == -9
            broker.wire.evict()
            before, stored = stored, BufferedEvent.objects.count()
            if writers == 1:
                assert stored == (number * 10 if point == "written" else (number + 1) * 10)
            else:  # the other writer may have stored its share, or not
                assert before <= stored <= (number + 1) * 10
                assert point == "written" or stored > before
    wait_for(lambda: BufferedEvent.objects.count() == 30, 40, "30 orders in the buffer")
    wait_for(lambda: broker.wire.lag() == 0, 40, "every record to be committed")
    assert workers.manage("flush_buffer", "--until-idle", "2").returncode == 0
    assert broker.orders() == sorted(names(3))
    assert sorted(bytes(letter.payload) for letter in DeadLetter.objects.all()) == [b"{poison %d" % n for n in range(3)]
    assert_verified()


def test_a_flusher_that_dies_anywhere_sends_every_order_once(broker: Broker, workers: Platform) -> None:
    """A batch may be delivered again, with the same id and the same bytes; `Broker.batches` insists on that."""
    workers.start("ingest_events")
    lives = [
        ("taken", "kill"), ("claimed", "kill"), ("sent", "kill"), ("settled", "kill"), ("settled", "lose"),
    ]  # fmt: skip
    for number, (point, action) in enumerate(lives):
        broker.send(*wave(number))
        wait_for(lambda orders=10 * (number + 1): BufferedEvent.objects.count() == orders, 40, "all orders to wait")
        flush = sabotaged(workers, point, action, "flush_buffer")
        if action == "kill":
            assert flush.end(40) == -9
        else:
            broker.wait_for_orders(*names(number + 1))
            assert flush.stop() == 0
    broker.wait_for_orders(*names(len(lives)))
    wait_for(lambda: not Batch.objects.claimed().exists() or restart(workers), 40, "every batch to be settled")
    again = len(broker.deliveries()) - len(broker.batches())
    # As a rule each of them had five batches; a flusher may claim them in two turns.
    assert again >= 2, "two lives ended after the broker had the batches and before the database knew"
    assert_verified()


def restart(workers: Platform) -> bool:
    if not workers.workers[-1].alive:
        workers.start("flush_buffer")
    return False


def test_a_frozen_flusher_finds_its_batches_gone_and_touches_nothing(broker: Broker, workers: Platform) -> None:
    workers.start("ingest_events")
    zombies = []
    for number, point in enumerate(["claimed", "sent"]):
        broker.send(*wave(number))
        zombie = sabotaged(workers, point, "freeze", "flush_buffer")
        wait_for(lambda zombie=zombie: zombie.frozen, 40, "the flusher to freeze")
        zombies.append(zombie)
    heir = workers.start("flush_buffer")
    broker.wait_for_orders(*names(2))
    wait_for(lambda: not Batch.objects.claimed().exists(), 30, "every batch to be settled")
    settled = {batch.pk: (batch.output_offset, batch.sent_at) for batch in Batch.objects.all()}
    for zombie in zombies:
        zombie.thaw()
    for zombie in zombies:
        wait_for(lambda zombie=zombie: "fence_lost" in zombie.text, 30, "the zombie to be fenced")
        assert zombie.count("fence_lost_total") >= 1
        assert zombie.stop() == 0
    assert {batch.pk: (batch.output_offset, batch.sent_at) for batch in Batch.objects.all()} == settled
    assert heir.stop() == 0
    assert broker.orders() == sorted(names(2))
    assert_verified()


@pytest.mark.parametrize(
    ("point", "command"), [("written", "ingest_events"), ("taken", "flush_buffer"), ("settled", "flush_buffer")]
)
def test_a_worker_that_is_frozen_inside_a_transaction_holds_nobody_up(
    broker: Broker, workers: Platform, pairs: range, point: str, command: str
) -> None:
    if len(pairs) < 2:
        pytest.skip("whoever sleeps in a transaction of SQLite holds the whole file")
    workers.environment["DATABASE_IDLE_TRANSACTION_SECONDS"] = "2"
    broker.send(*wave(0))
    others = [workers.start(name) for name in ("ingest_events", "flush_buffer") if name != command]
    zombie = sabotaged(workers, point, "freeze", command)
    wait_for(lambda: zombie.frozen, 40, "the worker to freeze")
    broker.wire.evict()
    others.append(workers.start(command))
    broker.wait_for_orders(*names(1))
    wait_for(lambda: not Batch.objects.claimed().exists(), 30, "every batch to be settled")
    zombie.thaw()
    broker.send(*wave(1))
    broker.wait_for_orders(*names(2))
    assert {worker.stop() for worker in [zombie, *others]} == {0}
    assert_verified()


def test_a_frozen_ingester_loses_its_partitions_and_moves_nothing_back(
    broker: Broker, workers: Platform, pairs: range
) -> None:
    if len(pairs) < 2:
        pytest.skip("one ingester is all that SQLite takes")
    broker.send(*wave(0))
    zombie = sabotaged(workers, "stored", "freeze", "ingest_events")
    wait_for(lambda: zombie.frozen, 40, "the ingester to freeze")
    broker.wire.evict()
    workers.start("ingest_events")
    broker.send(*wave(1))
    wait_for(lambda: BufferedEvent.objects.count() == 20, 40, "the heir to take over")
    wait_for(lambda: broker.wire.lag() == 0, 20, "every record to be committed")
    marks = positions()
    zombie.thaw()
    broker.send(*wave(2))
    wait_for(lambda: BufferedEvent.objects.count() == 30, 40, "30 orders in the buffer")
    assert all(position >= marks[tp] for tp, position in positions().items())
    wait_for(lambda: broker.wire.lag() == 0, 20, "every record to be committed")
    assert [worker.stop() for worker in workers.workers] == [0, 0]
    assert_verified()


def positions() -> dict[Any, int]:
    from outbox.bookkeeping.models import Watermark

    return dict(Watermark.objects.values_list("partition", "next_offset"))
