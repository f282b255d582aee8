"""A process that ends takes its name out of the group, unless another one has the name by then."""

import threading
from types import SimpleNamespace

import pytest

from config.kafka import client
from config.kafka.consumer.membership import Membership
from config.kafka.consumer.ports import ConsumerStopped, Follower
from throttler.worker import consumer_backend
from throttler.worker.consumer_backend import OwnerFollower


@pytest.fixture
def removed(monkeypatch):
    found = []
    monkeypatch.setattr(consumer_backend, "remove_static_member", lambda group, name, limit: found.append(name))
    return found


@pytest.mark.parametrize(("doubted", "names"), [(False, ["a"]), (True, [])])
def test_who_was_fenced_by_a_transaction_removes_nobody(removed, doubted, names):
    OwnerFollower(SimpleNamespace(doubted=doubted), None, "g", "a").left()
    assert removed == names


class Told(Follower):
    def __init__(self):
        self.gone = 0

    def left(self):
        self.gone += 1


class Client:
    """What poll() needs of the consumer; `error` is raised by it, and by the group while that is joined."""

    def __init__(self, error=None):
        self.error, self._coordinator = error, SimpleNamespace(rejoining=False, poll=self.poll)
        self._fetcher = SimpleNamespace(_next_partition_records=None)

    def poll(self, timeout_ms):
        raise self.error or client.KafkaError("no more")

    def close(self, autocommit, timeout_ms):
        pass


@pytest.mark.parametrize("rejoining", [True, False])
@pytest.mark.parametrize(
    ("error", "fenced", "gone"),
    [(client.FencedInstanceIdError("taken"), False, 0), (None, True, 0), (client.FATAL[0]("x"), False, 1)],
)
def test_who_was_fenced_by_the_group_removes_nobody(error, fenced, gone, rejoining):
    follower, stop = Told(), threading.Event()
    stop.set()  # nothing is waited for
    member = Membership("g", [], "w", stop, None, follower=follower, instance="a", is_fenced=lambda _consumer: fenced)
    member.consumer, member.rejoining = Client(error), rejoining
    with pytest.raises((ConsumerStopped, client.KafkaError)):
        member.poll(0)
    member.leave()
    assert follower.gone == gone
