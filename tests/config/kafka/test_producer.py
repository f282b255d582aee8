"""The producer: one verdict per message, and a client that survives what kills it."""

import math
import threading
import time
from contextlib import closing
from types import SimpleNamespace
from uuid import UUID

import pytest

from config.kafka import Failed, Outgoing, Producer, Refused, Sent, client, producer_internals
from config.kafka.producer import TOO_LATE
from config.kafka.reader import Reader
from tests.crash.wire import wait_for

PRODUCE, INIT_PRODUCER_ID = 0, 22
INVALID_RECORD, NOT_LEADER, LOADING = 87, 6, 14


@pytest.fixture
def producer(broker):
    found = Producer(patience=15, delivery_timeout_ms=10_000, request_timeout_ms=4_000, max_block_ms=4_000)
    yield found
    found.close()


@pytest.fixture
def impatient(scripted):
    found = Producer(patience=10, delivery_timeout_ms=1_000, request_timeout_ms=500)
    yield found
    found.close()


@pytest.fixture
def scripted(broker):
    """The broker, which answers with the errors that it is told."""
    if broker is None:
        pytest.skip("needs errors on demand, which only the embedded broker has")
    return broker


def values(topic):
    with Reader(topic) as reader:
        return [record.value for part in reader.batches() for record in part]


def message(topic, value, key="k"):
    return Outgoing(topic, key, value, [("batch_id", b"b")])


def test_each_message_is_acknowledged_with_its_place(producer, make_topic):
    topic = make_topic("t")
    outcomes = producer.send_all([message(topic, b"%d" % n) for n in range(3)])
    assert outcomes == [Sent(0, 0), Sent(0, 1), Sent(0, 2)]
    with Reader(topic) as reader:
        (part,) = reader.batches()
    assert [(record.key, record.value, list(record.headers)) for record in part][0] == (
        b"k",
        b"0",
        [("batch_id", b"b")],
    )


@pytest.mark.parametrize("broker", ["kafka"], indirect=True)
def test_the_id_of_a_topic_is_that_of_the_one_it_was_sent_to(producer, make_topic):
    topic, ids = make_topic("t"), []
    for _ in range(2):
        producer.send_all([message(topic, b"a")])
        ids.append(producer.topic_ids([topic])[topic])
        with Reader(topic) as reader:
            assert ids[-1] == reader.topic_id
        with closing(client.new_admin()) as admin:
            admin.delete_topics([topic])
            wait_for(lambda: topic not in admin.list_topics(), 30, "the topic to be gone")
        make_topic("t")
    assert len(set(ids)) == 2


class Metadata:
    """Of a producer that is told as many answers as a test has, and says what it knew at the last of them."""

    def __init__(self, *answers, under_way=False):
        self.answers, self.metadata_refresh_in_progress, self.known = list(answers), under_way, None

    def request_update(self):
        answer = self.answers.pop(0) if self.answers else None
        asked = SimpleNamespace(
            failed=lambda: isinstance(answer, Exception), add_both=lambda tell: answer and tell(answer)
        )
        self.known = answer
        return asked

    def topic_id(self, topic):
        return self.known


def ids_by(metadata):
    sender = SimpleNamespace(wakeup=lambda: None)
    return producer_internals.topic_ids(SimpleNamespace(_metadata=metadata, _sender=sender), ["t"], timeout=0.1)


BEFORE, NOW = UUID(int=1), UUID(int=2)


@pytest.mark.parametrize(
    ("metadata", "ids"),
    [
        (Metadata(NOW), {"t": str(NOW)}),
        (Metadata(BEFORE, NOW, under_way=True), {"t": str(NOW)}),  # what was asked before the records left is no answer
        (Metadata(client.KafkaError("away")), {}),
        (Metadata(), {}),
        (Metadata(BEFORE, under_way=True), {}),
    ],
)
def test_an_id_that_nobody_has_said_since_is_none(metadata, ids):
    assert ids_by(metadata) == ids


def test_old_brokers_have_no_ids(producer, make_topic, scripted):
    topic = make_topic("t")
    producer.send_all([message(topic, b"a")])
    assert producer.topic_ids([topic]) == {topic: ""}


def test_a_message_that_is_too_large_is_refused_before_it_is_sent(producer, make_topic):
    topic = make_topic("t")
    outcomes = producer.send_all([message(topic, b"a"), message(topic, b"x" * 1_100_000), message(topic, b"b")])
    assert [type(outcome) for outcome in outcomes] == [Sent, Refused, Sent]
    assert values(topic) == [b"a", b"b"]


def test_what_the_broker_refuses_for_good_does_not_take_the_others_with_it(producer, broker, make_topic):
    """The idempotent client fails every later send with a copy of the first error, for ever."""
    if broker is None:
        topic = make_topic("t", **{"max.message.bytes": "2000"})
        culprit = b"x" * 5000
    else:
        topic, culprit = make_topic("t"), b"culprit"
        broker.push_errors(PRODUCE, INVALID_RECORD, INVALID_RECORD)  # for the batch, then for the first alone
    first = producer.send_all([message(topic, culprit), message(topic, b"good")])
    assert isinstance(first[0], Refused)
    assert isinstance(first[1], Sent)
    assert isinstance(producer.send_all([message(topic, b"later")])[0], Sent)
    assert values(topic) == [b"good", b"later"]


def test_a_moved_leader_is_retried(producer, scripted, make_topic):
    topic = make_topic("t")
    scripted.push_errors(PRODUCE, NOT_LEADER, NOT_LEADER)
    assert producer.send_all([message(topic, b"a")]) == [Sent(0, 0)]


def test_a_client_whose_second_try_expires_is_replaced(impatient, scripted, make_topic):
    """kafka-python gives its producer id back then and never asks for another: nothing would leave again."""
    topic = make_topic("t")
    scripted.push_errors(PRODUCE, *[NOT_LEADER] * 1_000)
    (outcome,) = impatient.send_all([message(topic, b"a")])
    assert type(outcome) is Failed  # one of the three verdicts: its name is the value of a label
    scripted.clear_errors(PRODUCE)
    assert impatient.send_all([message(topic, b"b")]) == [Sent(0, 0)]


def test_so_is_one_whose_message_expires_when_it_is_sent_alone(impatient, scripted, make_topic):
    topic = make_topic("t")
    scripted.push_errors(PRODUCE, INVALID_RECORD, *[NOT_LEADER] * 1_000)
    (outcome,) = impatient.send_all([message(topic, b"a")])
    assert type(outcome) is Failed
    scripted.clear_errors(PRODUCE)
    assert impatient.send_all([message(topic, b"b")]) == [Sent(0, 0)]


def of_clients():
    """Their threads; another test may have left a timer of its own."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("kafka")}


def test_a_client_that_never_answers_is_ended_with_its_thread(scripted, make_topic):
    topic = make_topic("t")
    before = of_clients()
    producer = Producer(patience=1)
    scripted.push_errors(INIT_PRODUCER_ID, *[LOADING] * 1_000)
    (outcome,) = producer.send_all([message(topic, b"a")])
    assert isinstance(outcome, Failed)
    assert of_clients() <= before
    scripted.clear_errors(INIT_PRODUCER_ID)
    assert producer.send_all([message(topic, b"b")]) == [Sent(0, 0)]
    producer.close()


def test_a_broker_that_is_away_fails_without_harm_and_recovers(producer, broker, make_topic):
    if broker is None:
        pytest.skip("the shared Apache Kafka is not stopped; tests/processes stops one of its own")
    topic = make_topic("t")
    assert producer.send_all([message(topic, b"a")]) == [Sent(0, 0)]
    broker.down()
    (outcome,) = producer.send_all([message(topic, b"b")])
    assert isinstance(outcome, Failed)
    broker.up()
    (outcome,) = producer.send_all([message(topic, b"b")])
    assert isinstance(outcome, Sent)


def test_a_missing_topic_names_itself_and_the_remedy(producer, broker):
    if broker is not None:
        pytest.skip("the embedded broker makes topics on first use")
    (outcome,) = producer.send_all([message("no-such-topic", b"a")])
    assert isinstance(outcome, Failed)
    assert "no-such-topic" in outcome.error
    assert "create_topics" in outcome.error


@pytest.mark.parametrize("patience", [15, -1])
def test_what_is_held_up_for_too_long_is_not_sent(broker, make_topic, patience):
    """Whoever was frozen on the way here has lost what allowed it to send."""
    topic = make_topic("t")
    until = math.inf if patience < 0 else time.monotonic() - 1
    with closing(Producer(patience=patience)) as late:
        assert late.send_all([message(topic, b"a")], until) == [TOO_LATE]
    assert values(topic) == []
