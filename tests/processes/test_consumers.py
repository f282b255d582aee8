"""The ledger's worker and the intake of promises: killed between any two statements, cut off during their COMMIT."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.db import connection
from django.db.models import Model, Sum

from buffer.models import InventoryStock, InventoryTracking
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import Watermark
from outbox.models import DeadLetter, IdempotencyKey, OutboxMessage
from tests.crash.mail.promises import PromiseWire
from tests.crash.platform import Platform
from tests.crash.run import Plan
from tests.crash.stock.run import PARTITIONS, TIMINGS, Run, StockWire
from tests.crash.stock.traffic import PAID, Message, moved, paid
from tests.crash.wire import Wire, wait_for
from tests.outbox.intake.conftest import MAIL, TOPIC, envelope
from tests.processes.conftest import assert_holds, assert_verified, database_url, own_wire
from tests.processes.proxy import Cutter

PLAN = Plan(orders=3000, warehouses=200, kills=2, seed=20_261_121, evict=True)
SMALL = {"KAFKA_POLL_RECORDS": "20", "KAFKA_WRITERS": "1"}  # more than one batch a life, and nothing else is going on


def stock_wave(number: int) -> list[Message]:
    """Ten payments and ten transfers, some of them again, a contradiction, and a record that is none."""
    sold = [paid(f"S{number}-{n}", [("A", 1), ("B", 2)]) for n in range(10)]
    sent = [moved(f"T{number}-{n}", "A", "B", 5) for n in range(10)]
    poison = Message(PAID, b"poison", b"{poison %d" % number)
    return [*sold, *sent, *sold[:3], sent[0], paid(f"S{number}-1", [("A", 7)]), poison]


def assert_movements(waves: int) -> None:
    """Every movement once, every stock their sum."""
    sums = InventoryTracking.objects.values_list("stock_id").annotate(total=Sum("delta")).order_by()
    quantities = dict(InventoryStock.objects.values_list("pk", "quantity"))
    assert quantities == dict(sums) == {"A": -60 * waves, "B": 30 * waves}
    assert InventoryTracking.objects.count() == 40 * waves


def promise(name: str, **more: Any) -> Message:
    return Message(TOPIC, name.encode(), msgspec.json.encode(envelope(name, aggregate=name, **more)))


def promise_wave(number: int) -> list[Message]:
    """Thirty promises, some of them again, one key for another message, and a record that is none."""
    new = [promise(f"P{number}-{place}") for place in range(30)]
    other = promise(f"P{number}-1", payload={**MAIL, "to": "eve@example.com"})
    return [*new, *new[:3], other, Message(TOPIC, b"poison", b"{poison %d" % number)]


def assert_promises(waves: int) -> None:
    """Every promise once, and of each letter its producer is told."""
    messages = list(OutboxMessage.objects.values_list("channel", "aggregate", "payload"))
    mails = [aggregate for channel, aggregate, _ in messages if channel == "email"]
    assert len(set(mails)) == len(mails) == IdempotencyKey.objects.count() == 30 * waves
    assert not [payload for *_, payload in messages if "eve@" in payload]
    answers = [aggregate for channel, aggregate, _ in messages if channel == "kafka"]
    assert sorted(answers) == sorted(f"letter:{letter}" for letter in DeadLetter.objects.values_list("pk", flat=True))


@dataclass(frozen=True)
class Flow:
    """One of them: what it reads, what it does between two statements, and what is whole after so many waves."""

    name: str
    command: str
    wire: type[Wire]
    points: list[str]  # of tests.processes.saboteur; behind the last one it has committed
    wave: Callable[[int], list[Message]]
    assert_whole: Callable[[int], None]
    effects: list[type[Model]]  # what it inserts first stands first
    partitions: int = PARTITIONS
    config: dict[str, str] = field(default_factory=dict)  # of its topics

    def state(self) -> tuple[Any, ...]:
        """What has been committed: effects, letters, counts."""
        rows = [sorted(map(repr, model.objects.values_list())) for model in self.effects]
        letters = sorted(bytes(letter.payload or b"") for letter in DeadLetter.objects.all())
        return rows, letters, counters.totals(self.name)

    def read_again(self) -> int:
        return counters.totals(self.name)["read"] - len(self.wave(0))


FLOWS = [
    Flow(
        "ledger", "track_inventory", StockWire, ["recorded", "adjusted", "buried", "counted", "written", "stored"],
        stock_wave, assert_movements, [InventoryTracking, InventoryStock],
    ),
    Flow(
        "messages-in", "ingest_messages", PromiseWire,
        ["promised", "refused", "told", "counted", "written", "stored"],
        promise_wave, assert_promises, [IdempotencyKey, OutboxMessage], 3, {"message.timestamp.type": "LogAppendTime"},
    ),
]  # fmt: skip


@pytest.fixture(params=FLOWS, ids=lambda flow: flow.name)
def flow(request: pytest.FixtureRequest, transactional_db: None) -> Flow:
    InventoryStock.objects.bulk_create(InventoryStock(id=name) for name in "AB")
    return request.param


@pytest.fixture
def wire(flow: Flow, settings: Any) -> Iterator[Wire]:
    with own_wire(flow.wire, settings) as found:
        for topic in found.inputs:
            found.create(topic, flow.partitions, **flow.config)
        yield found


@pytest.fixture
def workers(wire: Wire, tmp_path: Path) -> Iterator[Platform]:
    with Platform(tmp_path, {**TIMINGS, **wire.environment, "DATABASE_URL": database_url()}) as platform:
        yield platform


def written() -> int:
    """How many records there are in the database; the broker's own figure lags behind where nobody writes."""
    return sum(Watermark.objects.values_list("next_offset", flat=True))


def assert_all_is_there(flow: Flow, waves: int) -> None:
    flow.assert_whole(waves)
    assert DeadLetter.objects.count() == 2 * waves
    assert_verified()


def test_a_worker_that_dies_between_any_two_statements_leaves_all_or_nothing(
    flow: Flow, wire: Wire, workers: Platform
) -> None:
    for number, point in enumerate(flow.points):
        wire.produce(flow.wave(number))
        before = flow.state()
        program = ["-m", "tests.processes.saboteur", point, "kill", flow.command]
        assert workers.launch(program, point, SMALL).end(40) == -9
        wire.evict()
        assert (flow.state() == before) is (point != "stored")
    worker = workers.start(flow.command)
    waves = len(flow.points)
    wait_for(lambda: written() == waves * len(flow.wave(0)), 40, "every record to be written")
    assert worker.stop() == 0
    assert_all_is_there(flow, waves)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_connection_that_is_cut_during_the_commit_changes_nothing_in_the_result(
    flow: Flow, wire: Wire, workers: Platform, moment: str
) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no connection that could be cut")
    table = connection.ops.quote_name(flow.effects[0]._meta.db_table).encode()
    wire.produce(flow.wave(0))
    with closing(Cutter(database_url(), b"INSERT INTO " + table, moment)) as cutter:
        worker = workers.start(flow.command, DATABASE_URL=cutter.url)
        wait_for(lambda: "database_unavailable" in worker.text, 40, "the worker to notice")
        wait_for(lambda: written() == len(flow.wave(0)), 40, "every record to be written")
        assert cutter.cuts == 1
        # Told to stop before it is back, it would leave what it does not know to the next one.
        wait_for(lambda: moment == "before" or flow.read_again() > 0, 40, "what was committed to be read again")
        assert worker.stop() == 0
    assert_all_is_there(flow, 1)
    assert (flow.read_again() > 0) is (moment == "after"), "the cut came at another moment"


@pytest.mark.parametrize("flow", FLOWS[:1], indirect=True, ids=["ledger"])
def test_killed_and_rebalanced_workers_count_every_effect_once(
    wire: StockWire, workers: Platform, pairs: range
) -> None:
    InventoryStock.objects.all().delete()  # the run has stocks of its own
    assert_holds(Run(workers, wire, PLAN, len(pairs), print).go())
