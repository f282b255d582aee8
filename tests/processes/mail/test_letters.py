"""Dead letters by command: what was refused goes back in, or is closed, and everything still adds up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from buffer.events.models import Batch, BufferedEvent
from tests.conftest import order
from tests.crash.platform import Platform
from tests.crash.wire import BATCHES, wait_for
from tests.processes.conftest import Broker, assert_verified

pytestmark = pytest.mark.parametrize("broker", ["kafka"], indirect=True)


def letters(workers: Platform) -> list[dict[str, Any]]:
    return [json.loads(line) for line in workers.manage("dead_letters", "list", "--json").stdout.splitlines()]


def pull(workers: Platform, verb: str, *ids: str) -> str:
    return workers.manage("dead_letters", verb, *ids, "--reason", "the test says so").stdout


def test_a_batch_the_broker_refuses_is_a_letter_and_goes_out_or_is_closed(
    broker: Broker, both: Any, workers: Platform
) -> None:
    broker.wire.configure(BATCHES, **{"max.message.bytes": "3000"})
    both()
    many = {f"S{number:03d}": number + 1 for number in range(100)}
    broker.send(order("BIG", "WH-1", items=many), order("VAST", "WH-2", items=many), order("A1", "WH-3"))
    broker.wait_for_orders("A1")
    wait_for(lambda: Batch.objects.parked().count() == 2, 60, "two refused batches")
    big, vast = (letter_of(workers, place) for place in ("WH-1", "WH-2"))
    assert {big["reason"], vast["reason"]} == {"batch_refused"}
    assert_verified()
    broker.wire.configure(BATCHES, **{"max.message.bytes": "1000000"})
    refused = Batch.objects.get(location_id="WH-1").pk
    pull(workers, "requeue", big["id"])
    pull(workers, "discard", vast["id"])
    broker.wait_for_orders("A1", "BIG")
    assert str(refused) in {body["batch_id"] for body in broker.batches()}
    wait_for(lambda: not Batch.objects.claimed().exists(), 30, "the batch to be settled")
    statuses = dict(BufferedEvent.objects.values_list("order_id", "status"))
    assert statuses == {"A1": "sent", "BIG": "sent", "VAST": "discarded"}
    assert_verified()


def letter_of(workers: Platform, location: str) -> dict[str, Any]:
    return next(letter for letter in letters(workers) if letter["key"] == location and letter["step"] == "publish")
