"""Topics on both brokers: what is created, what differs from the catalogue, and what alters it."""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from config.kafka import client, topics
from config.kafka.topics import Copies, TopicState, compare, create_topics, describe_topics, topic_name

LOG_TIME = {"message.timestamp.type": "LogAppendTime"}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.10"}
CATALOGUE: dict[str, dict] = {
    "plain": {"partitions": 2},
    "in": {"partitions": 3, "config": LOG_TIME},
    "out": {"partitions": 3, "partitions_of": "in", "config": LOG_TIME},
    "log": {"partitions": 3, "partitions_of": "in", "config": COMPACTED},
}

kafka = pytest.mark.parametrize("broker", ["kafka"], indirect=True)


@pytest.fixture(autouse=True)
def catalogue(settings: Any) -> None:
    settings.KAFKA_TOPICS = CATALOGUE


@pytest.fixture
def admin(broker: Any) -> Iterator[client.kafka.KafkaAdminClient]:
    with closing(client.new_admin()) as found:
        yield found


def by_name(admin: client.kafka.KafkaAdminClient, *made: str) -> dict[str, TopicState]:
    """The states by their contract names, once the broker knows the topics that were just made."""
    admin.wait_for_topics([topic_name(name) for name in made], timeout_ms=10_000)
    return {state.name.removeprefix(topic_name("")): state for state in describe_topics(admin)}


@pytest.mark.parametrize(
    ("copies", "words"),
    [
        (Copies(brokers=3, replicas=3, in_sync=3, min_insync=2), []),
        (Copies(brokers=2, replicas=2, in_sync=2, min_insync=1), []),
        (Copies(brokers=5, replicas=1, in_sync=1, min_insync=1), ["1 replica among 5 brokers, min.insync.replicas 1"]),
        (Copies(brokers=3, replicas=3, in_sync=1, min_insync=2), ["in sync are 1 of 3 replicas"]),
        (
            Copies(brokers=3, replicas=3, in_sync=3, min_insync=3),
            ["as many as it has replicas", "min.insync.replicas=2"],
        ),
        (Copies(brokers=2, replicas=2, in_sync=2, min_insync=2), ["as many as it has", "min.insync.replicas=1"]),
        (
            Copies(brokers=3, replicas=2, in_sync=2, min_insync=2),
            ["as many as it has replicas", ": give it 3 replicas ("],
        ),
        (Copies(brokers=3, replicas=3, in_sync=2, min_insync=1), ["in sync are 2 of 3", "min.insync.replicas is 1"]),
    ],
)
def test_what_a_cluster_could_lose_is_said_with_its_remedy(copies, words):
    verdicts = "\n".join(copies.verdicts("t"))
    assert all(word in verdicts for word in words)
    assert bool(verdicts) == bool(words)


def test_a_single_broker_keeps_one_replica_and_nothing_is_wrong():
    copies = Copies(brokers=1, replicas=1, in_sync=1, min_insync=1)
    assert (str(copies), list(copies.verdicts("t"))) == ("1 replica on the only broker, min.insync.replicas 1", [])


@kafka
def test_what_was_created_differs_in_nothing(admin):
    assert [created for _, created in create_topics()] == [True] * 4
    found = by_name(admin, *CATALOGUE)
    assert [state.partitions for state in found.values()] == [2, 3, 3, 3]
    assert not any(state.verdicts or state.untold for state in found.values())


@kafka
def test_a_topic_that_is_made_while_a_worker_starts_is_waited_for(make_topic, monkeypatch):
    consumer = client.new_consumer(None)
    ask, made = consumer.partitions_for_topic, []

    def make_afterwards(topic):
        known = ask(topic)
        if not made:
            made.append(make_topic("late", 2))
            # What the client does instead of answering, if it was just asking for this topic by itself.
            raise client.UnknownTopicOrPartitionError(topic)
        return known

    monkeypatch.setattr(consumer, "partitions_for_topic", make_afterwards)
    assert client.count_partitions(consumer, topic_name("late")) == 2
    monkeypatch.setattr(client, "NEW_TOPIC", 0.3)
    assert client.count_partitions(consumer, topic_name("never")) == 0
    consumer.close(autocommit=False)


@kafka
def test_what_differs_is_named_and_nothing_of_it_is_changed(admin, make_topic, settings):
    name = make_topic("in", 3)
    make_topic("out", 2, **LOG_TIME)
    make_topic("log", 5, **{"cleanup.policy": "delete", "min.cleanable.dirty.ratio": "0.1"})
    before = by_name(admin, "in", "out", "log")
    seen = {topic: [(found.setting, found.found) for found in state.differences] for topic, state in before.items()}
    assert seen == {
        "plain": [],
        "in": [("message.timestamp.type", "CreateTime")],
        "out": [("partitions", "2")],
        "log": [("partitions", "5"), ("cleanup.policy", "delete")],
    }
    assert before["plain"].verdicts == ["missing: run create_topics"]
    assert before["in"].verdicts == [
        f"message.timestamp.type is CreateTime, should be LogAppendTime: kafka-configs.sh --bootstrap-server "
        f"{','.join(settings.KAFKA_BOOTSTRAP_SERVERS)} --alter --entity-type topics --entity-name {name} "
        "--add-config message.timestamp.type=LogAppendTime"
    ]
    assert {state.name: created for state, created in create_topics()} == {
        topic_name("plain"): True, topic_name("in"): False, topic_name("out"): False, topic_name("log"): False,
    }  # fmt: skip
    after = by_name(admin, "plain")
    assert after.pop("plain").partitions == 2
    assert after == {topic: state for topic, state in before.items() if topic != "plain"}


@kafka
def test_a_missing_topic_gets_as_many_partitions_as_the_one_it_follows_has(admin, make_topic):
    make_topic("in", 4, **LOG_TIME)
    by_name(admin, "in")
    create_topics()
    found = by_name(admin, *CATALOGUE)
    assert (found["out"].partitions, found["log"].partitions) == (4, 4)
    assert [state.verdicts for topic, state in found.items() if topic != "in"] == [[], [], []]
    assert found["in"].verdicts[0].startswith("partitions is 4, should be 3: correct KAFKA_TOPICS, or drain first")


@kafka
def test_the_command_says_what_it_creates_and_what_a_person_has_to_alter(admin, make_topic):
    make_topic("in", 3)
    by_name(admin, "in")
    said, warned = io.StringIO(), io.StringIO()
    call_command("create_topics", stdout=said, stderr=warned)
    assert said.getvalue().splitlines() == [
        f"{topic_name(name)}: {'exists' if name == 'in' else 'created'}" for name in CATALOGUE
    ]
    [line] = warned.getvalue().splitlines()
    assert line.startswith(f"{topic_name('in')}: message.timestamp.type is CreateTime, should be LogAppendTime: ")


def test_the_command_says_what_existing_topics_could_lose(monkeypatch):
    states = [(TopicState("in", 3, 3, copies=Copies(3, 1, 1, 1)), False), (TopicState("out", 0, 3), True)]
    monkeypatch.setattr("config.management.commands.create_topics.create_topics", lambda names: states)
    said, warned = io.StringIO(), io.StringIO()
    call_command("create_topics", stdout=said, stderr=warned)
    assert said.getvalue().splitlines() == ["in: exists", "out: created"]
    [line] = warned.getvalue().splitlines()
    assert line.startswith("in: 1 replica among 3 brokers, min.insync.replicas 1, its records go with one of them: ")


@kafka
def test_the_command_creates_only_what_it_is_told(admin, make_topic):
    make_topic("in", 4, **LOG_TIME)
    by_name(admin, "in")
    said = io.StringIO()
    call_command("create_topics", "out", "plain", stdout=said)
    assert said.getvalue().splitlines() == [f"{topic_name(name)}: created" for name in ("plain", "out")]
    found = by_name(admin, "plain", "out")
    assert (found["out"].partitions, found["log"].partitions) == (4, 0)
    with pytest.raises(CommandError, match="^inn, outt: not in KAFKA_TOPICS, which has plain, in, out, log$"):
        call_command("create_topics", "outt", "in", "inn")


@kafka
@pytest.mark.parametrize("replicas", [100, 0])
def test_replicas_that_a_cluster_cannot_have_are_refused_in_a_line_that_names_the_setting(admin, settings, replicas):
    settings.KAFKA_REPLICATION_FACTOR = replicas
    with pytest.raises(CommandError, match=f"KAFKA_REPLICATION_FACTOR={replicas}: a topic can have") as refused:
        call_command("create_topics", "plain")
    assert "Request" not in str(refused.value)


@pytest.mark.parametrize("broker", ["embedded"], indirect=True)
def test_a_broker_that_tells_no_configuration_is_compared_by_its_partitions(admin, make_topic):
    for name in ("plain", "in", "log"):
        make_topic(name, CATALOGUE[name]["partitions"])
    make_topic("out", 2)
    found = by_name(admin)
    assert {topic for topic, state in found.items() if state.untold} == {"plain", "in", "out", "log"}
    assert "cannot be asked (KafkaConnectionError)" in found["in"].untold
    assert [found.setting for state in found.values() for found in state.differences] == ["partitions"]
    said = io.StringIO()
    call_command("create_topics", stdout=said)
    assert said.getvalue().count(": exists") == 4


@kafka
def test_a_setting_that_the_broker_does_not_tell_is_not_compared(admin, monkeypatch):
    create_topics()
    # What the client returns without the right to describe configurations.
    monkeypatch.setattr(
        admin, "describe_configs", lambda asked, **_: {"topic": {resource.name: {} for resource in asked}}
    )
    found = by_name(admin, *CATALOGUE)
    assert not any(state.verdicts for state in found.values())
    assert found["in"].untold == "message.timestamp.type not told (right DescribeConfigs?)"
    assert found["plain"].untold == ""


@pytest.mark.parametrize(
    ("told", "wanted", "same"),
    [
        ("0.1", "0.10", True),
        ("86400000", "86400000", True),
        ("0.5", "0.1", False),
        ("compact,delete", "delete, compact", True),
        ("compact,delete", "compact", False),
        ("CreateTime", "LogAppendTime", False),
        ("", "compact", False),
    ],
)
def test_numbers_are_compared_by_value_and_lists_in_any_order(told, wanted, same):
    assert (not list(compare("t", {"config": {"x": wanted}}, {"x": told}))) is same


def test_the_command_to_alter_is_one_that_a_shell_takes_as_it_is(settings):
    settings.KAFKA_SECURITY_PROTOCOL = "SASL_SSL"
    settings.KAFKA_BOOTSTRAP_SERVERS = ["k1:9092", "k2:9092"]
    [found] = compare("t", {"config": {"x": "a,b"}}, {"x": "a"})
    assert shlex.split(found.remedy) == [
        "kafka-configs.sh", "--bootstrap-server", "k1:9092,k2:9092", "--command-config", "client.properties",
        "--alter", "--entity-type", "topics", "--entity-name", "t", "--add-config", "x=[a,b]",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "counts", "remedy"),
    [
        (
            "plain",
            {"p.plain": 1},
            "2: kafka-topics.sh --bootstrap-server k1:9092 --alter --topic p.plain --partitions 2",
        ),
        ("plain", {"p.plain": 9}, "2: a topic never loses partitions: correct KAFKA_TOPICS, or make this one anew"),
        (
            "log",
            {"p.in": 6, "p.log": 3},
            "6 as p.in: kafka-topics.sh --bootstrap-server k1:9092 --alter --topic p.log --partitions 6",
        ),
        ("log", {"p.in": 3, "p.log": 6}, "3 as p.in: a topic never loses partitions: give p.in as many"),
        ("in", {"p.in": 2}, "3: correct KAFKA_TOPICS, or drain first"),
    ],
)
def test_partitions_are_added_where_that_loses_nothing_and_never_taken_away(settings, name, counts, remedy):
    settings.KAFKA_BOOTSTRAP_SERVERS, settings.KAFKA_TOPIC_PREFIX = ["k1:9092"], "p."
    [found] = topics.compare_partitions(f"p.{name}", CATALOGUE[name], counts)
    assert str(found).startswith(f"partitions is {counts[f'p.{name}']}, should be {remedy}")
