"""Two of each, side by side, nobody killed: no batch twice, no worker ends, every deadlock tried again and counted."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.crash import oracle
from tests.crash.platform import Platform
from tests.crash.traffic import traffic
from tests.crash.wire import Source, orders_in, wait_for
from tests.processes.conftest import Broker, assert_verified

pytestmark = pytest.mark.parametrize("broker", ["kafka"], indirect=True)
SECONDS = 6.0


def test_workers_side_by_side_never_do_the_same_work(broker: Broker, workers: Platform, pairs: range) -> None:
    samples = traffic(6000, 120, 5)
    crew = [
        workers.start(command, name=f"{command}-{n}", BUFFER_MAX_BATCH="20", BUFFER_CAP_SECONDS="4")
        for command in ("ingest_events", "flush_buffer") for n in pairs
    ]  # fmt: skip
    source = Source(broker.wire, samples, seconds=SECONDS)
    source.start()
    produced = source.finish()
    orders = len(oracle.histories(produced))
    wait_for(lambda: len(orders_in(broker.deliveries())) >= orders, 60, f"{orders} orders")
    wait_for(lambda: broker.wire.lag() == 0, 20, "every record to be committed")
    reruns = Counter(
        labels["cause"] for worker in crew for name, labels, _ in worker.metrics() if name == "transaction_rerun_total"
    )
    print("reruns by cause:", dict(reruns))

    def done() -> list[float]:
        # Together, not each: on a busy machine one flusher may find nothing left to do.
        return [sum(worker.count(name) for worker in crew if worker.name.startswith(kind)) for kind, name in DONE]

    # A batch stands in the topic before it is settled, and only then it counts.
    wait_for(lambda: all(done()), 20, "both kinds of workers to count what they did")
    assert [worker.stop() for worker in crew] == [0] * len(crew)
    times = Counter(json.loads(record.value)["batch_id"] for record in broker.deliveries())
    assert set(times.values()) == {1}
    assert {"1205", "WriterTimeout"}.isdisjoint(reruns), "somebody waited until the server gave up"
    assert_verified()


DONE = [("inges", "ingest_records_total"), ("flush", "publish_batches_total")]
