"""How much the polling thread hands to the owner before a transaction is settled."""

from types import SimpleNamespace

import pytest

from throttler.worker.consumer_backend import AHEAD, FEW, OwnerBackend


class Owner:
    """Settles when it is told to."""

    failure = None

    def __init__(self):
        self.posted = []

    def take(self, *_):
        """Never called here."""

    adopt = take

    def post(self, _act, prepared, *more):
        self.posted.append((prepared, more[-1]))


@pytest.fixture
def backend():
    return OwnerBackend(Owner(), None, "in")


def hand(backend, records):
    return backend.submit(None, SimpleNamespace(records=range(records), prepared=records), timeout=0.0)


def test_large_batches_wait_for_the_transaction_of_the_one_before(backend):
    assert [hand(backend, FEW) for _ in range(AHEAD + 1)] == [True] * AHEAD + [False]
    assert backend.busy
    backend.owner.posted[0][1]()
    assert [hand(backend, FEW), hand(backend, FEW)] == [True, False]


def test_small_batches_all_go_into_the_next_transaction(backend):
    assert all(hand(backend, 10) for _ in range(FEW // 10))
    assert not hand(backend, 10)
    for _prepared, done in backend.owner.posted:
        done()
    assert not backend.busy
    assert hand(backend, FEW)


def test_a_worker_that_has_just_adopted_a_partition_is_busy_until_that_is_settled(backend):
    """With nothing to read it would end before the reset that it was started for is in the changelog."""
    backend.adopt(None, ())
    assert backend.busy
    backend.owner.posted[0][1]()
    assert not backend.busy
