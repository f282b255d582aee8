"""Transactions on a real broker: verdicts, offsets, fencing, refused records."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from config.kafka import client, internals
from config.kafka.reader import Reader
from config.kafka.transactional_producer import (
    Committed,
    FencedInstance,
    RefusedByGroup,
    RefusedRecord,
    TransactionalProducer,
    Unknown,
    remove_static_member,
)
from tests.processes.proxy import BrokerGate

SESSION_MS = 40_000

pytestmark = pytest.mark.parametrize("broker", ["kafka"], indirect=True)


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    return make_topic("transactions", 2)


@pytest.fixture
def producer(broker: None) -> Iterator[TransactionalProducer]:
    with closing(TransactionalProducer(f"t{uuid.uuid4()}")) as found:
        found.rebuild()
        yield found


def values_of(topic: str) -> list[bytes]:
    with Reader(topic) as reader:
        return [record.value for records in reader.batches() for record in records]


def join(topic: str, group: str, name: str | None = None, *others: Any) -> Any:
    """A member with partitions, beside others that are polled meanwhile."""
    consumer = client.new_consumer(
        group,
        group_instance_id=name,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=300,
        session_timeout_ms=SESSION_MS,
    )
    consumer.subscribe([topic])
    poll_until([consumer, *others], lambda: all(each.assignment() for each in (consumer, *others)))
    return consumer


def poll_until(consumers: list[Any], done: Callable[[], Any], seconds: float = 60) -> None:
    """Poll side by side: a join that completes between two polls of its member is dropped by the client."""
    deadline = time.monotonic() + seconds
    with ThreadPoolExecutor(len(consumers)) as pool:
        while not done():
            assert time.monotonic() < deadline
            list(pool.map(lambda each: each.poll(timeout_ms=2000), consumers))


def committed(topic: str, group: str) -> int | None:
    with closing(client.new_consumer(group)) as consumer:
        found: int | None = consumer.committed(client.TopicPartition(topic, 0))
        return found


def test_records_and_offsets_are_committed_together(topic, producer):
    with closing(join(topic, f"{topic}-group")) as consumer:
        producer.begin()
        producer.send(topic, 0, b"k", b"one", [("h", b"v")])
        producer.send(topic, 1, b"k", None, [])
        assert producer.commit({(topic, 0): 7}, consumer.group_metadata()) == Committed()
        assert (set(values_of(topic)), committed(topic, f"{topic}-group")) == ({b"one", None}, 7)


def test_what_was_aborted_is_not_there_and_the_next_transaction_is(topic, producer):
    for value, commit in ((b"aborted", False), (b"kept", True)):
        producer.begin()
        producer.send(topic, 0, None, value, [])
        if commit:
            assert producer.commit({}, None) == Committed()
        else:
            producer.abort()
    assert values_of(topic) == [b"kept"]


def test_a_zombie_of_an_old_generation_is_refused_and_may_go_on(topic, producer):
    with closing(join(topic, f"{topic}-group")) as consumer:
        now = consumer.group_metadata()
        for stale in (now._replace(generation_id=now.generation_id + 5), now._replace(member_id="gone")):
            producer.begin()
            producer.send(topic, 0, None, b"zombie", [])
            assert isinstance(producer.commit({(topic, 0): 1}, stale), RefusedByGroup)
        producer.begin()
        assert producer.commit({(topic, 0): 2}, now) == Committed()
    assert (values_of(topic), committed(topic, f"{topic}-group")) == ([], 2)


def test_offsets_that_the_group_refused_do_not_leave_with_the_next_transaction(topic, producer):
    """Whoever was thrown out and joins again would set a partition back that others have moved on."""
    with closing(join(topic, f"{topic}-group")) as consumer:
        now = consumer.group_metadata()
        producer.begin()
        assert producer.commit({(topic, 0): 7}, now) == Committed()
        producer.begin()
        assert isinstance(producer.commit({(topic, 0): 3}, now._replace(member_id="gone")), RefusedByGroup)
        producer.begin()
        assert producer.commit({(topic, 1): 1}, now) == Committed()
    assert committed(topic, f"{topic}-group") == 7


def test_another_producer_of_the_same_id_makes_the_outcome_unknown(topic, producer):
    producer.begin()
    producer.send(topic, 0, None, b"first", [])
    with closing(TransactionalProducer(producer.transactional_id)) as second:
        second.rebuild()
        assert isinstance(producer.commit({}, None), Unknown)
        assert not producer.usable
        assert values_of(topic) == []
    producer.rebuild()
    producer.begin()
    producer.send(topic, 0, None, b"again", [])
    assert (producer.commit({}, None), values_of(topic)) == (Committed(), [b"again"])


def test_a_client_that_is_made_anew_has_sent_nothing_yet(topic, producer):
    producer.begin()
    producer.send(topic, 0, None, b"before", [])
    producer.rebuild()
    producer.begin()
    assert (producer.commit({}, None), values_of(topic)) == (Committed(), [])


def test_a_client_that_was_never_built_commits_nothing(broker):
    producer = TransactionalProducer("never")
    producer.begin()
    producer.send("nowhere", 0, None, b"x", [])
    assert isinstance(producer.commit({}, None), Unknown)


@pytest.mark.parametrize("size", [400_000, 2_000_000], ids=["by the broker", "by the client"])
def test_a_record_that_is_too_large_is_named(make_topic, producer, size):
    topic = make_topic("small", 2, **{"max.message.bytes": "300000"})
    producer.begin()
    for partition, value in ((0, b"small"), (1, b"small"), (1, b"x" * size), (1, b"small")):
        producer.send(topic, partition, None, value, [])
    verdict = producer.commit({}, None)
    assert isinstance(verdict, RefusedRecord)
    assert (verdict.index, verdict.topic, verdict.partition) == (2, topic, 1)
    if not producer.usable:
        producer.rebuild()
    producer.begin()
    producer.send(topic, 0, None, b"next", [])
    assert (producer.commit({}, None), values_of(topic)) == (Committed(), [b"next"])


@pytest.mark.parametrize("large", [None, 7], ids=["all fit", "one does not"])
def test_a_batch_that_the_broker_finds_too_large_is_split_until_its_records_fit(make_topic, producer, large):
    topic = make_topic("smaller", 1, **{"max.message.bytes": "30000"})
    values = [b"%02d" % index + b"x" * (50_000 if index == large else 5_000) for index in range(20)]
    producer.begin()
    for value in values:
        producer.send(topic, 0, None, value, [])
    verdict = producer.commit({}, None)
    if large is None:
        assert (verdict, values_of(topic)) == (Committed(), values)
    else:
        assert isinstance(verdict, RefusedRecord)
        assert (verdict.index, values_of(topic)) == (large, [])


def test_a_transaction_whose_records_all_expired_is_not_committed(topic, settings):
    """The client itself commits such a one without an error, and nothing was written."""
    (server,) = settings.KAFKA_BOOTSTRAP_SERVERS
    with closing(BrokerGate(server)) as gate:
        settings.KAFKA_BOOTSTRAP_SERVERS = [gate.address]
        brief = {"delivery_timeout_ms": 1000, "request_timeout_ms": 900}
        with closing(TransactionalProducer(f"id-{topic}", **brief)) as producer:
            producer.rebuild()
            assert producer._client.partitions_for(topic)  # it is not asked for while the gate is shut
            producer.begin()
            gate.shut()
            producer.send(topic, 0, None, b"expired", [])
            back = threading.Timer(2.0, gate.reopen)
            back.start()
            verdict = producer.commit({}, None)
            back.join()
    settings.KAFKA_BOOTSTRAP_SERVERS = [server]
    assert (type(verdict), values_of(topic)) == (Unknown, [])


def test_more_than_a_batch_holds_leaves_in_the_order_it_was_sent(topic, producer):
    values = [b"%03d" % index + b"x" * 4_000 for index in range(200)]
    producer.begin()
    for value in values:
        producer.send(topic, 0, b"k", value, [("empty", None)])
    assert (producer.commit({}, None), values_of(topic)) == (Committed(), values)


def test_a_partition_that_is_not_there_makes_the_outcome_unknown(topic, producer):
    producer.begin()
    producer.send(topic, 0, None, b"kept back", [])
    producer.send(topic, 5, None, b"nowhere", [])
    assert isinstance(producer.commit({}, None), Unknown)
    assert values_of(topic) == []


def test_a_member_whose_name_was_taken_is_seen_and_cannot_commit(topic, producer):
    group = f"{topic}-group"
    with closing(join(topic, group, "one")) as first:
        metadata = first.group_metadata()
        assert not internals.is_fenced(first)
        with closing(join(topic, group, "one")):
            poll_until([first], lambda: internals.is_fenced(first))
            producer.begin()
            producer.send(topic, 0, None, b"zombie", [])
            assert producer.commit({(topic, 0): 1}, metadata) == FencedInstance(f"another member is one of {group}")
    assert values_of(topic) == []


def test_a_member_whose_name_was_taken_does_not_fence_the_producer_of_the_other(topic, producer):
    group = f"{topic}-group"
    with closing(join(topic, group, "one")) as first, closing(TransactionalProducer("other")) as zombie:
        zombie.transactional_id = producer.transactional_id
        metadata = first.group_metadata()
        with closing(join(topic, group, "one")) as second:
            producer.rebuild(second.group_metadata())
            with pytest.raises(client.KafkaError, match=r"another member is one of .*-group now"):
                zombie.rebuild(metadata)
            producer.begin()
            assert producer.commit({(topic, 0): 1}, second.group_metadata()) == Committed()
        assert remove_static_member(group, "one")
        zombie.rebuild(metadata)  # nobody has the name: nobody is fenced


def test_a_removed_member_leaves_its_partitions_to_the_other(topic):
    group = f"{topic}-group"
    with closing(join(topic, group, "gone")) as gone, closing(join(topic, group, "stays", gone)) as stays:
        gone.close()
        assert remove_static_member(group, "gone")
        # Long before its session would have ended.
        poll_until([stays], lambda: len(stays.assignment()) == 2, seconds=SESSION_MS / 2000)


def test_removing_a_member_that_is_not_there_says_so(topic):
    assert not remove_static_member(f"{topic}-group", "nobody")
