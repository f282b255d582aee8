"""What makes an order one order and a warehouse one warehouse, across spellings and across months."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from buffer.events.models import Batch, Bucket, BufferedEvent
from outbox.letters.models import DeadLetter
from tests.conftest import order
from tests.crash.traffic import SPELLINGS, written
from tests.processes.conftest import Broker, assert_verified

NOW = datetime.now(UTC)
MONTH = NOW.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
LAST_SECOND = MONTH - timedelta(seconds=1)


def test_four_spellings_stay_four_warehouses(broker: Broker, both: Any) -> None:
    both()
    broker.send(*[order("A1", place, items={"S1": n}) for n, place in enumerate(SPELLINGS, 1)], key="k")
    broker.send(*[order("a1", place, items={"S1": 10}) for place in SPELLINGS], key="k")
    broker.wait_for_orders(*["A1", "a1"] * 4)
    sent = {body["location_id"]: body["items"] for body in broker.batches()}
    assert sent == {place: [{"sku": "S1", "quantity": n + 10}] for n, place in enumerate(SPELLINGS, 1)}
    assert {record.key.decode() for record in broker.deliveries()} == set(SPELLINGS)
    for model in (BufferedEvent, Bucket, Batch):
        assert set(model.objects.values_list("location_id", flat=True)) == set(SPELLINGS)
    assert Counter(BufferedEvent.objects.values_list("order_id", flat=True)) == {"A1": 4, "a1": 4}
    for place in SPELLINGS:
        assert Bucket.objects.filter(location_id=place).count() == 1
    assert_verified()


@pytest.mark.parametrize("broker", ["kafka"], indirect=True)
def test_an_order_belongs_to_one_month_and_outside_the_window_to_none(broker: Broker, both: Any) -> None:
    both()
    zones = ["Z", "+05:30", "-08:00", "+00:00"]
    old = [order("OLD", at=written(LAST_SECOND, zone), items={"S1": 1}) for zone in zones]
    new = [order("NEW", at=written(MONTH, zone), items={"S1": 1}) for zone in zones]
    far = [written(NOW + timedelta(days=days), "Z") for days in (-2000, -430, 130, 2000)]
    outside = [order(f"F{number}", at=at) for number, at in enumerate([*far, "0001-01-01T00:00:00+14:00"])]
    broker.send(*outside, *old, *new)
    broker.send(order("OLD", at=written(LAST_SECOND, "Z"), items={"S1": 7}))
    broker.wait_for_orders("NEW", "OLD")
    (body,) = broker.batches()
    assert body["items"] == [{"sku": "S1", "quantity": 8}]
    assert dict(BufferedEvent.objects.values_list("order_id", "partition_key")) == {
        "OLD": LAST_SECOND.year * 100 + LAST_SECOND.month, "NEW": MONTH.year * 100 + MONTH.month,
    }  # fmt: skip
    broker.send(
        order("OLD", at=written(LAST_SECOND, "Z"), items={"S1": 7}),
        old[0],
        order("OLD", at=written(LAST_SECOND, "Z"), items={"S1": 9}),
    )
    broker.send(order("END"))
    broker.wait_for_orders("END", "NEW", "OLD")
    assert BufferedEvent.objects.count() == 3
    letters = DeadLetter.objects.order_by("offset")
    assert [letter.reason for letter in letters] == ["outside_window"] * 5 + ["late_event"] * 2
    assert [bytes(letter.payload) for letter in letters[:5]] == outside
    assert_verified()
