"""Dead letters by command: what was refused goes back in, or is closed, and everything still adds up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from buffer.events.models import Batch, BufferedEvent
from outbox.audit_log.models import OperatorAction
from outbox.letters.models import DeadLetter
from tests.conftest import order
from tests.crash.platform import Platform
from tests.crash.wire import BATCHES, wait_for
from tests.processes.conftest import Broker, assert_verified

pytestmark = pytest.mark.parametrize("broker", ["kafka"], indirect=True)


def letters(workers: Platform) -> list[dict[str, Any]]:
    return [json.loads(line) for line in workers.manage("dead_letters", "list", "--json").stdout.splitlines()]


def pull(workers: Platform, verb: str, *ids: str) -> str:
    return workers.manage("dead_letters", verb, *ids, "--reason", "the test says so").stdout


def test_a_late_change_that_is_requeued_goes_out_as_a_supplement(broker: Broker, both: Any, workers: Platform) -> None:
    both()
    broker.send(order("A1", items={"S1": 3, "S2": 1}))
    broker.wait_for_orders("A1")
    broker.send(order("A1", items={"S1": 5, "S3": 2}), b"{poison")
    wait_for(lambda: DeadLetter.objects.count() == 2, 30, "two letters")
    late, poison = sorted(letters(workers), key=lambda letter: letter["reason"] != "late_event")
    assert "1 letters requeued" in pull(workers, "requeue", late["id"])
    broker.wait_for_orders("A1", "A1")
    supplement = next(body for body in broker.batches() if "supplement_of" in body)
    assert supplement["items"] == [
        {"sku": "S1", "quantity": 2}, {"sku": "S2", "quantity": -1}, {"sku": "S3", "quantity": 2},
    ]  # fmt: skip
    pull(workers, "requeue", poison["id"])
    again = [letter for letter in letters(workers) if letter["reason"] == "invalid_json"]
    # What is known to fail again is not taken back: it stays open, and there is no second letter.
    assert [(letter["status"], letter["revision"]) for letter in again] == [("open", 0)]
    pull(workers, "discard", again[0]["id"])
    assert DeadLetter.objects.filter(status="open").count() == 0
    assert [OperatorAction.objects.filter(verb=verb).count() for verb in ("requeue", "discard", "export")] == [2, 1, 2]
    assert_verified()


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
