"""The embedded broker: what it refuses in words, and that it goes and comes as the tests of others need it to."""

from __future__ import annotations

import sys
from contextlib import closing

import kafka.errors
import pytest
from kafka import KafkaProducer

from config.demo import embedded_kafka
from config.demo.embedded_kafka import EmbeddedKafka, EmbeddedKafkaError
from tests.services.embedded import CLIENT_OPTIONS, FaultyKafka


def test_what_is_sent_while_the_broker_is_down_arrives_when_it_is_up():
    with FaultyKafka() as broker:
        broker.create_topic("orders", 3)
        with closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **CLIENT_OPTIONS)) as producer:
            producer.send("orders", b"before").get(10)
            broker.down()
            waiting = producer.send("orders", b"later")
            with pytest.raises(kafka.errors.KafkaTimeoutError):
                waiting.get(0.5)
            broker.up()
            assert waiting.get(30).topic == "orders"


def test_a_broker_that_does_not_run_refuses_in_words():
    stopped = FaultyKafka()
    for ask in (lambda: stopped.create_topic("t", 1), stopped.down, lambda: stopped.bootstrap_servers):
        with pytest.raises(EmbeddedKafkaError, match="does not run"):
            ask()
    stopped.stop()


def test_bad_topics_are_refused():
    with FaultyKafka() as broker:
        broker.create_topic("orders", 3)
        with pytest.raises(EmbeddedKafkaError, match="already exists"):
            broker.create_topic("orders", 3)
        with pytest.raises(EmbeddedKafkaError, match="0 partitions"):
            broker.create_topic("empty", 0)


def test_without_confluent_kafka_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    embedded_kafka.load.cache_clear()
    with pytest.raises(EmbeddedKafkaError, match=r"spillway\[demo\]"):
        EmbeddedKafka().start()
    embedded_kafka.load.cache_clear()
