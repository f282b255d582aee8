"""Partitions that are paused alone, on both brokers: others are read on, and nothing is skipped when it goes on."""

import threading
from collections import defaultdict
from contextlib import closing
from types import SimpleNamespace

import pytest

from config.kafka import client
from config.kafka.consumer.membership import Membership

PARTITIONS = 4
EACH = 1_000  # records at first; a poll takes fewer, so that the client keeps some of a partition that it pauses


@pytest.fixture
def topic(make_topic):
    return make_topic("paused", PARTITIONS)


@pytest.fixture
def send(topic):
    with closing(client.new_producer()) as producer:

        def put(count, partitions=range(PARTITIONS)):
            for number in partitions:
                for _ in range(count):
                    producer.send(topic, value=b"x" * 300, partition=number)
            producer.flush()

        yield put


@pytest.fixture
def member(topic, settings):
    """A member that has all partitions, without a group that would give them."""
    settings.KAFKA_POLL_RECORDS = EACH // 4
    holder = SimpleNamespace(drop=lambda gone: None)
    one = Membership("g", [topic], "pausing", threading.Event(), holder)
    with closing(one.connect()) as consumer:
        consumer.assign([client.TopicPartition(topic, number) for number in range(PARTITIONS)])
        for tp in sorted(one.owned()):
            one.start(tp, 0)
        yield one


class Reading:
    """What came of each partition, in its order."""

    def __init__(self, member):
        self.member, self.offsets = member, defaultdict(list)

    def step(self):
        found = self.member.poll(100)
        for record in found:
            self.offsets[record.partition].append(record.offset)
        return {record.partition for record in found}

    def until(self, upto):
        """Until so many have come of each of these; 200 polls at most."""
        for _ in range(200):
            if all(len(self.offsets[number]) >= count for number, count in upto.items()):
                break
            self.step()
        found = {number: self.offsets[number] for number in upto}
        assert found == {number: list(range(count)) for number, count in upto.items()}


def test_a_partition_is_paused_alone_and_goes_on_where_it_was(member, send, topic):
    send(EACH)
    reading = Reading(member)
    while not (read := reading.step()):
        pass
    paused = min(read)  # the client has more of it than it gave
    member.hold_only({(topic, paused)})
    others = sorted(set(range(PARTITIONS)) - {paused})
    before = len(reading.offsets[paused])
    reading.until(dict.fromkeys(others, EACH))
    send(10)
    reading.until(dict.fromkeys(others, EACH + 10))
    assert len(reading.offsets[paused]) == before
    member.hold_only(set())
    reading.until(dict.fromkeys(range(PARTITIONS), EACH + 10))


def test_one_after_the_other_is_paused_and_goes_on(member, send, topic):
    send(EACH)
    reading = Reading(member)
    for number in range(PARTITIONS):
        reading.step()
        member.hold_only({(topic, number)})
    reading.step()
    member.hold_only(set())
    reading.until(dict.fromkeys(range(PARTITIONS), EACH))


def test_a_pause_of_all_and_a_pause_of_one_do_not_undo_each_other(member, send, topic):
    member.hold_only({(topic, 0)})
    member.hold(True)
    member.hold(False)
    assert paused(member) == {0}
    member.hold(True)
    member.hold_only({(topic, 1)})
    assert paused(member) == set(range(PARTITIONS))
    member.hold(False)
    assert paused(member) == {1}
    member.start_over({(topic, 1)})
    member.start((topic, 1), 0)  # what it waited for is forgotten with its records
    assert paused(member) == set()


def paused(member):
    return {tp.partition for tp in member.consumer.paused()}
