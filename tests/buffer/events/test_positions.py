"""Which of two deliveries is newer: one answer, in Python (one batch) and in SQL (several), in whatever order they come."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buffer.events.arrivals import Position
from buffer.events.models import BufferedEvent
from tests.conftest import order

positions = st.builds(Position, st.sampled_from(["a", "b"]), st.integers(0, 2), st.integers(0, 5), st.integers(0, 3))


@given(positions, positions)
def test_two_positions_are_never_both_newer(one, other):
    assert not (one.newer_than(other) and other.newer_than(one))
    assert not one.newer_than(one)


@pytest.mark.django_db
@pytest.mark.parametrize("same_batch", [True, False])
@pytest.mark.parametrize("places", list(permutations([(0, 1000), (1, 1000), (2, 999)])))
def test_the_record_timestamp_decides_and_if_it_is_the_same_the_partition(ingest, records, places, same_batch):
    found = [
        records(order(items={"S1": partition + 1}), partition=partition, timestamp=timestamp)[0]
        for partition, timestamp in places
    ]
    for part in [found] if same_batch else [[one] for one in found]:
        ingest(part)
    assert BufferedEvent.objects.get().source_partition == 1
