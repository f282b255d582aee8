"""Frozen batches: the same content has the same id and bytes, other content never does."""

import copy
import uuid
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buffer.flush.flusher import message_of
from buffer.flush.freeze import Claimed, LeasedBatch, batch_id_of, cut, freeze
from buffer.streams import streams
from tests.conftest import order

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def event(number: int, **changes) -> Claimed:
    found = Claimed(
        number,
        202611,
        "WH-1",
        f"A{number}",
        order(f"A{number}", items={"S1": number}).decode(),
        f"h{number}",
        0,
        number,
    )
    return found._replace(**changes)


def test_the_message_says_what_contract_says(stream):
    frozen = freeze(stream, "WH-1", 7, [event(1), event(2)], NOW)
    message = msgspec.json.decode(frozen.payload)
    assert message == {
        "batch_id": str(frozen.batch_id),
        "location_id": "WH-1",
        "flushed_at": "2026-11-21T12:00:00.000000Z",
        "order_ids": ["A1", "A2"],
        "items": [{"sku": "S1", "quantity": 3}],
    }
    assert frozen.headers["batch_id"] == str(frozen.batch_id)
    assert frozen.headers["traceparent"].startswith("00-")
    assert msgspec.json.decode(frozen.headers["positions"]) == [[0, 1], [0, 2]]


def test_the_same_content_has_the_same_id_in_any_order():
    assert batch_id_of("s", "WH-1", 1, [event(1), event(2)]) == batch_id_of("s", "WH-1", 1, [event(2), event(1)])


@pytest.mark.parametrize(
    "other",
    [
        lambda: batch_id_of("t", "WH-1", 1, [event(1)]),
        lambda: batch_id_of("s", "WH-2", 1, [event(1)]),
        lambda: batch_id_of("s", "WH-1", 2, [event(1)]),
        lambda: batch_id_of("s", "WH-1", 1, [event(1), event(2)]),
        lambda: batch_id_of("s", "WH-1", 1, [event(1, source_offset=9)]),
        lambda: batch_id_of("s", "WH-1", 1, [event(1, payload_hash="other")]),
    ],
)
def test_other_content_has_another_id(other):
    assert other() != batch_id_of("s", "WH-1", 1, [event(1)])


def test_the_row_number_is_no_content():
    """A rebuilt buffer numbers its rows anew and must still find the same ids."""
    assert batch_id_of("s", "WH-1", 1, [event(1)]) == batch_id_of("s", "WH-1", 1, [event(1, id=999)])


def test_freezing_twice_gives_the_same_bytes(stream):
    first, second = (freeze(stream, "WH-1", 1, [event(1), event(2)], NOW) for _ in range(2))
    assert first == second
    assert isinstance(first.batch_id, uuid.UUID)


def test_batches_are_cut_at_the_count_and_at_the_bytes(stream, monkeypatch):
    monkeypatch.setattr(stream, "max_batch", 2)
    assert [len(part) for part in cut(stream, [event(n) for n in range(5)])] == [2, 2, 1]
    monkeypatch.setattr(stream, "max_bytes", 1)
    assert [len(part) for part in cut(stream, [event(n) for n in range(3)])] == [1, 1, 1]


def test_a_batch_names_the_topic_of_all_its_orders(stream):
    """Those that wait from before the topic was created again have places of their own."""
    waiting = [event(n, topic_id="old" if n in (1, 2, 5) else "new") for n in range(1, 7)]
    parts = cut(stream, waiting)
    assert [[found.id for found in part] for part in parts] == [[1, 2, 5], [3, 4, 6]]
    assert [freeze(stream, "WH-1", 1, part, NOW).headers["topic_id"] for part in parts] == ["old", "new"]


@given(st.lists(st.tuples(st.integers(1, 200), st.integers(1, 1000)), max_size=60), st.sampled_from(["W", "é" * 200]))
def test_no_message_of_several_orders_is_larger_than_allowed(sizes, location):
    """Not even with the least BUFFER_MAX_BYTES, and with orders that say nothing but what the message repeats."""
    stream = copy.copy(streams()["transfer-requests"])
    stream.max_bytes = 10_000
    events = [
        event(
            n, order_id="A" * name, payload=order("A" * name, location, items={f"S{n}" + "x" * (sku - 3): 1}).decode()
        )
        for n, (name, sku) in enumerate(sizes)
    ]
    parts = cut(stream, events)
    assert [found.id for part in parts for found in part] == [found.id for found in events]
    for frozen in (freeze(stream, location, 1, part, NOW) for part in parts if len(part) > 1):
        leased = LeasedBatch(frozen.batch_id, stream.name, location, frozen.payload, frozen.headers, 1)
        assert message_of(leased).size <= stream.max_bytes
