"""Reading a topic from its beginning to its end, whoever else writes into it."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import closing

import pytest
from kafka.structs import ConsumerGroupMetadata

from config.kafka import client, internals
from config.kafka.positions import Log
from config.kafka.reader import GroupOffsets, LogChanged, MissingTopic, ReadConnection, Reader, Timeframe, record_at
from tests.crash.wire import wait_for

only_real = pytest.mark.parametrize("broker", ["kafka"], indirect=True)
only_embedded = pytest.mark.parametrize("broker", ["embedded"], indirect=True)


@pytest.fixture
def topic(make_topic):
    """Three partitions with three records each: partition and number."""
    name = make_topic("read", 3)
    write(name, *[(partition, number) for partition in range(3) for number in range(3)])
    return name


@pytest.fixture
def connection(topic):
    with closing(ReadConnection(f"{topic}-group")) as found:
        yield found


def write(topic, *places):
    with closing(client.new_producer()) as producer:
        for partition, number in places:
            producer.send(topic, key=b"k", value=b"%d-%d" % (partition, number), partition=partition)


def commit(topic, partition, offset):
    with closing(client.new_consumer(f"{topic}-group")) as consumer:
        tp = client.TopicPartition(topic, partition)
        consumer.assign([tp])
        consumer.commit({tp: client.OffsetAndMetadata(offset, "", -1)})


def stranger():
    """A producer with an open transaction."""
    found = client.new_producer(transactional_id=f"t{uuid.uuid4()}")
    found.init_transactions()
    found.begin_transaction()
    return found


def values_of(reader: Reader) -> list[bytes]:
    return [record.value for records in reader.batches() for record in records]


def rest_of(reader: Reader) -> list[bytes]:
    found = []
    while reader.reading:
        for part in reader.step(1).values():
            found += [record.value for record in part]
    return found


def test_the_record_at_a_position(make_topic):
    topic = make_topic("read")
    producer = client.new_producer()
    for number in range(3):
        producer.send(topic, value=b"%d" % number, headers=[("n", b"%d" % number)])
    producer.close()
    found = record_at(topic, 0, 1)
    assert (found.value, found.headers, found.offset) == (b"1", [("n", b"1")], 1)
    assert [record_at(*place) for place in ((topic, 0, 3), (topic, 7, 0), (f"{topic}.none", 0, 0))] == [None] * 3


def test_what_is_committed_behind_an_open_transaction_is_read(make_topic, broker):
    """A restore stopped before somebody else's open transaction, and missed the batches behind it."""
    if broker is not None:
        pytest.skip("needs transactions, which only the real broker has")
    topic = make_topic("transactions")
    other = stranger()
    other.send(topic, value=b"open").get(10)
    ours = client.new_producer()
    ours.send(topic, value=b"behind").get(10)
    ours.close()
    with Reader(topic) as reader:
        timer = threading.Timer(1.0, other.abort_transaction)
        timer.start()
        assert values_of(reader) == [b"behind"]
        timer.join()
    other.close()


def test_chosen_partitions_are_read(topic):
    with Reader(topic, [2, 0]) as reader:
        assert sorted(values_of(reader)) == [b"0-0", b"0-1", b"0-2", b"2-0", b"2-1", b"2-2"]
        assert reader.total == 6


def test_one_connection_serves_several_readers(topic, connection):
    for _ in range(2):
        with Reader(topic, [1], connection) as reader:
            assert values_of(reader) == [b"1-0", b"1-1", b"1-2"]
    write(topic, (1, 3))
    assert connection.logs(topic, [1])[1].end == 4


def test_partitions_join_a_reader_that_is_at_work_and_leave_it(topic, connection):
    reader = Reader(topic, (), connection)
    assert (reader.reading, reader.total) == (set(), 0)
    found = []
    reader.add([0, 1])
    reader.drop([0])
    reader.add([2])
    while reader.reading:
        for part in reader.step(1).values():
            found += [record.value for record in part]
    assert sorted(found) == [b"1-0", b"1-1", b"1-2", b"2-0", b"2-1", b"2-2"]


def test_a_partition_that_is_added_again_starts_over_and_goes_to_its_new_end(topic, connection):
    reader = Reader(topic, [0], connection)
    assert len(values_of(reader)) == 3
    write(topic, (0, 3))
    reader.add([0])
    assert rest_of(reader) == [b"0-0", b"0-1", b"0-2", b"0-3"]


def test_what_comes_after_the_end_was_taken_is_not_read(topic):
    with Reader(topic, [0]) as reader:
        write(topic, (0, 3))
        assert values_of(reader) == [b"0-0", b"0-1", b"0-2"]


def test_a_connection_may_give_the_newest_values_only(topic):
    with closing(ReadConnection().only_newest()) as connection, Reader(topic, None, connection) as reader:
        found = {}
        while reader.reading:
            for partition, batches in reader.step(1).items():
                for batch in batches:
                    found.setdefault(partition, {}).update(batch.values)
    assert found == {number: {b"k": b"%d-2" % number} for number in range(3)}


@only_real
def test_a_missing_topic_is_one_line(topic, connection):
    with pytest.raises(MissingTopic, match="^topic nowhere does not exist: create_topics makes it$"):
        Reader("nowhere")
    with pytest.raises(MissingTopic, match="^topic nowhere does not exist"):
        connection.committed("nowhere", [0], 1)


def test_a_missing_partition_is_one_line(topic):
    with pytest.raises(MissingTopic, match=f"^topic {topic} has 3 partitions, 7 is not one of them.*create_topics"):
        Reader(topic, [0, 7])


def test_the_facts_of_a_log(topic, connection, broker):
    found = connection.logs(topic, [1])
    assert found == {1: Log(found[1].topic_id, 0, 3, None)}
    assert bool(found[1].topic_id) == (broker is None)


@only_real
def test_a_topic_that_was_created_again_has_another_id_on_a_connection_that_was_kept(topic, connection):
    before = connection.logs(topic, [0])[0]
    with closing(client.new_admin()) as admin:
        admin.delete_topics([topic])
        for _ in range(100):
            try:
                admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
                break
            except client.TopicAlreadyExistsError:
                continue
    after = connection.logs(topic, [0])[0]
    assert (after.end, after.topic_id == before.topic_id) == (0, False)


def test_what_a_group_has_committed(topic, connection):
    commit(topic, 1, 2)
    assert connection.committed(topic, [0, 1], 5) == GroupOffsets({0: None, 1: 2}, frozenset())


@only_real
def test_a_pending_offset_is_told_from_the_settled_ones(topic, connection):
    commit(topic, 1, 2)
    other = stranger()
    offsets = {client.TopicPartition(topic, 0): client.OffsetAndMetadata(3, "", -1)}
    other.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(group_id=f"{topic}-group"))
    assert connection.committed(topic, [0, 1], 0.3) == GroupOffsets({1: 2}, frozenset({0}))
    assert connection.committed(topic, [0], 0.3) == GroupOffsets({}, frozenset({0}))
    other.commit_transaction()
    assert connection.committed(topic, [0, 1], 5) == GroupOffsets({0: 3, 1: 2}, frozenset())
    other.close()


@only_embedded
def test_a_coordinator_that_is_away_is_not_taken_for_a_pending_offset(topic, connection, monkeypatch):
    def committed_of(*_arguments):
        raise client.KafkaTimeoutError("away")

    monkeypatch.setattr(internals, "committed_of", committed_of)
    with pytest.raises(client.KafkaTimeoutError):
        connection.committed(topic, [0, 1], 0.2)


@only_embedded
def test_an_answer_that_came_too_late_is_not_that_to_the_next_question(topic, connection, broker):
    tps = [client.TopicPartition(topic, 0)]
    assert internals.committed_of(connection.consumer, tps, 5000) == {}
    broker.set_round_trip(300)
    with pytest.raises(client.KafkaTimeoutError):
        internals.committed_of(connection.consumer, tps, 50)
    (late,) = connection.consumer._coordinator._offset_fetch_futures.values()
    deadline = time.monotonic() + 30
    while not late.is_done:
        assert time.monotonic() < deadline
    broker.set_round_trip(0)
    commit(topic, 0, 2)
    assert internals.committed_of(connection.consumer, tps, 5000) == {tps[0]: 2}


@only_embedded
def test_a_broker_that_dies_while_it_is_read_is_noticed(topic, broker, monkeypatch):
    with Reader(topic) as reader:
        broker.down()
        monkeypatch.setattr("config.kafka.reader.QUIET", 0.1)
        monkeypatch.setattr("config.kafka.reader.PATIENCE", 0.5)
        with pytest.raises(client.KafkaTimeoutError):
            for _ in range(20):
                reader.step(0.1)


# -- What changes under a reader ------------------------------------------------------------------------------
def remove(topic, broker, partition, before):
    if broker is not None:
        broker.delete_records(topic, partition, before)
        return
    with closing(client.new_admin()) as admin:
        admin.delete_records({client.TopicPartition(topic, partition): before})


def make_again(topic, partitions):
    with closing(client.new_admin()) as admin:
        admin.delete_topics([topic])
        wait_for(lambda: topic not in admin.list_topics(), 30, "the topic to be gone")
        admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1}})
        wait_for(lambda: topic in admin.list_topics(), 30, "the topic to be known")


def test_a_reader_says_that_records_were_removed_before_it_read_them(topic, broker):
    with Reader(topic) as reader:
        remove(topic, broker, 1, 2)
        with pytest.raises(LogChanged, match=f"{topic}/1: records were removed before they were read"):
            values_of(reader)


def test_a_timeframe_says_that_records_were_removed_before_it_read_them(topic, broker):
    with Timeframe(topic, 0, 2**42, 0) as frame:
        bounds = frame.bounds()
        remove(topic, broker, 1, 2)
        with pytest.raises(LogChanged, match="records were removed"):
            list(frame.parts(bounds, 10))


@only_real
def test_a_reader_says_that_its_topic_was_created_again(topic):
    with Reader(topic) as reader:
        make_again(topic, 3)
        write(topic, *[(partition, number) for partition in range(3) for number in range(3)])
        with pytest.raises(LogChanged, match="was created again"):
            values_of(reader)


@only_real
def test_partitions_of_another_topic_do_not_join_a_reader_that_is_at_work(topic, connection):
    reader = Reader(topic, [0], connection)
    make_again(topic, 3)
    with pytest.raises(LogChanged, match="was created again"):
        reader.add([1])


@only_real
def test_a_timeframe_says_that_its_topic_was_created_again(topic):
    with Timeframe(topic, 0, 2**42, 0) as frame:
        bounds = frame.bounds()
        make_again(topic, 3)
        write(topic, *[(partition, number) for partition in range(3) for number in range(3)])
        with pytest.raises(LogChanged, match="was created again"):
            list(frame.parts(bounds, 10))
