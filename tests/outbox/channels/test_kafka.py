"""The outbox as a general relay to Kafka topics."""

import pytest

from config.kafka import Failed, Refused
from config.kafka.records import RecordReceipt
from outbox.channels.kafka import KafkaHandler
from outbox.letters.models import DeadLetter
from outbox.models import ChannelState
from tests.conftest import MemoryProducer
from tests.outbox.scripted import message, promise, states

pytestmark = pytest.mark.django_db


@pytest.fixture
def kafka(install):
    handler = KafkaHandler()
    handler.name = "kafka"
    handler.producer = MemoryProducer()
    return install(handler)


def record(**more):
    return {"topic": "audit", "key": "k", "value": {"n": 1}, **more}


def test_a_message_becomes_a_record(kafka, go, settings):
    settings.KAFKA_TOPIC_PREFIX = "pre-"
    pk = promise("order:1", channel="kafka", payload=record(headers={"x": "y"}), correlation_id="c-1")
    assert go(kafka) == 1
    (sent,) = kafka.producer.sent
    assert (sent.topic, sent.key, sent.value) == ("pre-audit", "k", b'{"n":1}')
    assert dict(sent.headers) == {
        "x": b"y", "message_id": str(pk).encode(), "event_type": b"order.paid", "correlation_id": b"c-1",
    }  # fmt: skip
    assert message(pk).receipt == "0/0"


def test_a_receipt_names_the_topic_that_the_record_is_in(kafka, go):
    kafka.producer.ids = {"audit": "8d3b4bd6-0f5a-4a75-8a2d-5b7f3a0c1f11"}
    pk = promise(channel="kafka", payload=record())
    go(kafka)
    receipt = message(pk).receipt
    assert receipt == "0/0@8d3b4bd6-0f5a-4a75-8a2d-5b7f3a0c1f11"
    assert RecordReceipt.of(receipt) == (0, 0, "8d3b4bd6-0f5a-4a75-8a2d-5b7f3a0c1f11")
    assert (RecordReceipt.of("3/17"), RecordReceipt.of("250 OK"), RecordReceipt.of("")) == ((3, 17, ""), None, None)


def test_headers_that_are_null_count_as_left_out(kafka, go):
    promise("order:1", channel="kafka", payload=record(headers=None))
    assert go(kafka) == 1
    assert dict(kafka.producer.sent[0].headers).keys() == {"message_id", "event_type"}


def test_headers_in_a_list_leave_in_their_order_and_byte_for_byte(kafka, go):
    given = [["a", "1"], ["b", {"base64": "/wAB"}], ["a", "2"], ["empty", ""], ["null", None], ["message_id", "theirs"]]
    promise(channel="kafka", payload=record(headers=given), correlation_id="c-1")
    go(kafka)
    headers = kafka.producer.sent[0].headers
    theirs = [
        ("a", b"1"),
        ("b", b"\xff\x00\x01"),
        ("a", b"2"),
        ("empty", b""),
        ("null", None),
        ("message_id", b"theirs"),
    ]
    assert headers[: len(theirs)] == theirs
    assert [name for name, _value in headers[len(theirs) :]] == ["event_type", "correlation_id"]


def test_headers_of_a_payload_do_not_replace_the_messages_own(kafka, go):
    """Receivers deduplicate by `message_id`."""
    own = ["message_id", "event_type", "correlation_id"]
    pk = promise(channel="kafka", payload=record(headers=dict.fromkeys(own, "a lie")), correlation_id="c-1")
    go(kafka)
    found = dict(kafka.producer.sent[0].headers)
    assert [found[name] for name in own] == [str(pk).encode(), b"order.paid", b"c-1"]


def test_a_text_goes_out_as_it_is(kafka, go):
    promise(channel="kafka", payload=record(value="plain ü"))
    go(kafka)
    assert kafka.producer.sent[0].value == "plain ü".encode()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"key": "k", "value": 1}, "topic"),
        ({"topic": "", "key": "k", "value": 1}, "topic"),
        ({"topic": "t", "key": "k", "value": 1, "partition": 3}, "partition"),
        ({"topic": "t", "key": "k", "value": 1, "headers": {"a": 1}}, "headers"),
        ({"topic": "t", "key": "k", "value": 1, "headers": [["a"]]}, "headers"),
        ({"topic": "t", "key": "k", "value": 1, "headers": {"a": {"base64": "?"}}}, "headers"),
        (["t"], "payload"),
    ],
)
def test_a_wrong_payload_is_refused_when_it_is_published(kafka, wrong, says):
    with pytest.raises(ValueError, match=says):
        promise(channel="kafka", payload=wrong)


def test_what_the_broker_refuses_for_good_is_a_letter(kafka, go):
    promise("order:1", channel="kafka", payload=record())
    promise("order:2", channel="kafka", payload=record())
    kafka.producer.outcomes = [Refused("too large")]
    assert go(kafka) == 1
    assert states() == {"dead_lettered": 1, "sent": 1}
    assert DeadLetter.objects.get().error == "too large"


def test_a_broker_that_is_away_costs_nothing(kafka, go):
    pks = [promise(f"order:{n}", channel="kafka", payload=record()) for n in range(3)]
    kafka.producer.outcomes = [Failed("away")] * 3
    assert go(kafka) == 0
    assert {message(pk).attempts for pk in pks} == {0}
    assert ChannelState.objects.get().failures == 1


def test_a_topic_that_does_not_exist_does_not_open_the_breaker(kafka, go):
    bad, good = (promise(f"order:{n}", channel="kafka", payload=record()) for n in range(2))
    kafka.producer.outcomes = [Failed("audit: does the topic exist?")]
    assert go(kafka) == 1
    assert (message(bad).attempts, message(bad).error_class) == (1, "transient")
    assert message(good).state == "sent"
    assert ChannelState.objects.get().failures == 0
