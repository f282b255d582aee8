"""A node of its own is killed while rows are stored: what was stored is there, what was not is stored again."""

import signal
import threading
from contextlib import closing
from dataclasses import replace

import pytest
from django.db import OperationalError

from tests.services.cassandra import Cassandra
from tests.services.service import Unavailable
from tests.throttler.overflow.conftest import lane, offsets, row
from tests.throttler.overflow.test_cassandra import until_answered


class Careful(Cassandra):
    """As the documents ask for where one node holds the only copy."""

    sync = "commitlog_sync: batch"
    stop_signal = signal.SIGKILL


@pytest.fixture
def node(place, tmp_path):
    node = Careful(tmp_path)
    try:
        # Where the server came in a container there may be no Java for one of its own.
        node.install()
    except Unavailable as reason:
        pytest.skip(str(reason).splitlines()[0])
    try:
        node.start()
        yield node
    finally:
        node.stop()


def test_a_killed_node_comes_back_with_every_row_that_it_took(place, node):
    module = pytest.importorskip("throttler.overflow.cassandra", exc_type=ImportError)
    with closing(module.CassandraStore(replace(place, port=node.port), days=3)) as store:
        store.create()
        taken = store_until_refused(store, lambda: node.process.stop(signal.SIGKILL, seconds=10))
        node.start()
        until_answered(lambda: store.store([row(offset) for offset in range(taken, taken + 20)]))
        assert offsets(store.read([lane(limit=taken + 100)])) == list(range(taken + 20))


def store_until_refused(store, kill):
    """Twenty rows a call; the kill meets one of them. How many rows were taken."""
    some, taken = threading.Event(), 0

    def when_some_are_stored():
        some.wait(timeout=30)
        kill()

    killer = threading.Thread(target=when_some_are_stored)
    killer.start()
    with pytest.raises(OperationalError, match="CASSANDRA_URL"):
        while True:
            store.store([row(offset) for offset in range(taken, taken + 20)])
            taken += 20
            if taken == 400:
                some.set()
    killer.join()
    return taken
