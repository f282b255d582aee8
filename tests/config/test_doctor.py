"""`doctor` on both brokers: transactions, clocks, topics; and what each process says of its clock."""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack, closing
from datetime import timedelta
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection

from config.database import clock, tables
from config.database.clock import database_now
from config.kafka import client as kafka_broker
from config.kafka.client import controller_skew, transactions_supported
from config.kafka.topics import TopicState, create_topics, topic_name
from config.probes import doctor
from config.processes.alive import identity_of
from config.telemetry import metrics
from outbox.processes import heartbeat
from outbox.processes.heartbeat import Heartbeat

kafka = pytest.mark.parametrize("broker", ["kafka"], indirect=True)
embedded = pytest.mark.parametrize("broker", ["embedded"], indirect=True)


@pytest.fixture(autouse=True)
def catalogue(settings: Any) -> None:
    settings.KAFKA_TOPICS = {"in": {"partitions": 2, "config": {"message.timestamp.type": "LogAppendTime"}}}


@pytest.mark.django_db
def test_a_server_that_only_reads_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "READ_ONLY_SQL", {connection.vendor: "SELECT 1"})
    (finding,) = [found for found in doctor.examine() if not found.ok and found.name == "database"]
    assert finding.detail.endswith("ms; the server only reads, as a standby does that is not promoted")


def await_topic() -> None:
    with closing(kafka_broker.new_admin()) as admin:
        admin.wait_for_topics([topic_name("in")], timeout_ms=10_000)


def findings() -> dict[str, doctor.Finding]:
    return {found.name.replace(topic_name(""), ""): found for found in doctor._broker()}


@kafka
def test_a_broker_with_all_its_topics_is_in_order(broker):
    create_topics()
    await_topic()
    found = findings()
    assert found.keys() == {"broker", "transactions", "broker clock", "topic in"}
    assert all(each.ok for each in found.values())
    assert found["topic in"].detail == "present; 1 replica on the only broker, min.insync.replicas 1"


@kafka
def test_a_setting_that_differs_is_a_finding_with_its_remedy(broker, make_topic):
    make_topic("in", 1)
    await_topic()
    wrong = [found for found in doctor._broker() if not found.ok]
    assert [found.detail.partition(" is ")[0] for found in wrong] == ["partitions", "message.timestamp.type"]
    assert all(found.name == f"topic {topic_name('in')}" and " --alter " in found.detail for found in wrong)


@embedded
def test_what_the_embedded_broker_does_not_tell_is_no_fault(broker, make_topic, settings):
    make_topic("in", 2)
    settings.KAFKA_TRANSACTIONS = False
    found = findings()
    assert all(each.ok for each in found.values())
    assert found["topic in"].detail == "present; configuration cannot be asked (KafkaConnectionError)"
    assert found["broker clock"].detail.startswith("cannot tell")
    assert "at-least-once" in found["transactions"].detail


@embedded
def test_transactions_that_are_on_need_a_broker_that_has_them(broker, settings):
    settings.KAFKA_TRANSACTIONS = True
    found = findings()["transactions"]
    assert (found.ok, found.detail) == (False, kafka_broker.NO_TRANSACTIONS)


@kafka
def test_a_client_that_speaks_as_to_an_old_broker_has_no_transactions_either(broker, settings):
    with closing(kafka_broker.new_admin()) as admin:
        assert transactions_supported(admin)
    for version, supported in (((2, 4), False), ((2, 5), True)):
        settings.KAFKA_API_VERSION = version
        with closing(kafka_broker.new_admin()) as admin:
            assert transactions_supported(admin) is supported


@kafka
def test_the_clock_of_the_controller_is_compared(broker):
    with closing(kafka_broker.new_admin()) as admin:
        assert abs(controller_skew(admin)) < timedelta(seconds=doctor.MOST_SKEW)


@pytest.mark.parametrize(
    ("dead", "told"),
    [
        (0, []),
        (1, ["1 of 3 brokers does not answer", "the others go on"]),
        (2, ["2 of 3 brokers do not answer", "without a majority nothing is decided"]),
    ],
)
def test_a_broker_that_is_left_alone_is_not_asked_what_it_remembers(monkeypatch, dead, told):
    """Combined brokers: two of three are dead, and the third goes on naming them, and every topic, as it last was."""
    with ExitStack() as stack:
        places = [stack.enter_context(socket.socket()) for _ in range(3)]
        for number, place in enumerate(places):
            place.bind(("127.0.0.1", 0))
            if number >= dead:
                place.listen()
        ports = [place.getsockname()[1] for place in places]
        brokers = [{"broker_id": port, "host": "127.0.0.1", "port": port} for port in ports]
        admin = SimpleNamespace(describe_cluster=lambda: {"brokers": brokers}, close=lambda: None, api_versions=dict)
        monkeypatch.setattr(doctor, "new_admin", lambda: admin)
        monkeypatch.setattr(doctor, "controller_skew", lambda admin: None)
        monkeypatch.setattr(doctor, "describe_topics", lambda admin: [TopicState("in", 2, 2)])
        found = findings()
    assert found["broker"].ok is (dead == 0)
    assert all(words in found["broker"].detail for words in told)
    assert [port for port in ports if f":{port}" in found["broker"].detail] == ports[:dead]
    assert ("topic in" in found) is (dead < 2)


def quorum(leader: int, **stamps: int) -> SimpleNamespace:
    voters = [{"replica_id": int(name[1:]), "last_fetch_timestamp": stamp} for name, stamp in stamps.items()]
    answer = {"topics": [{"partitions": [{"leader_id": leader, "current_voters": voters}]}]}
    return SimpleNamespace(describe_metadata_quorum=lambda: answer)


def test_only_the_active_controller_tells_its_clock_and_an_old_one_tells_none():
    ahead = controller_skew(quorum(2, c1=1, c2=32_503_680_000_000, c3=1))  # the year 3000
    assert ahead > timedelta(days=300_000)
    assert controller_skew(quorum(2, c1=1, c2=-1)) is None
    assert controller_skew(quorum(-1, c1=1)) is None


@pytest.mark.parametrize("seconds", [3600, -3600, 2])
def test_a_clock_that_differs_is_a_fault_in_either_direction(seconds):
    assert not doctor._broker_clock(timedelta(seconds=seconds)).ok
    assert f"{abs(seconds)}.00 s" in doctor._broker_clock(timedelta(seconds=seconds)).detail
    assert doctor._broker_clock(timedelta(seconds=seconds / 4000)).ok


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("database", "took", "ahead"), [(-30, 0, 30), (30, 0, -30), (0.4, 1, 0), (3, 1, -2.5), (-0.4, 1, 0)]
)
def test_a_report_says_how_far_the_clock_of_its_machine_is_ahead(client, monkeypatch, database, took, ahead):
    """What the question took explains half of that; web says it of its own machine."""
    begun = database_now()
    seconds = cycle([begun.timestamp(), begun.timestamp() + took])
    monkeypatch.setattr(clock, "time", SimpleNamespace(time=lambda: next(seconds)))
    monkeypatch.setattr(clock, "database_now", lambda using: begun + timedelta(seconds=took / 2 + database))
    monkeypatch.setattr(heartbeat, "close_old_connections", lambda: None)  # this is the test's own
    assert Heartbeat(identity_of("relay_outbox"))._try(lambda now: None)
    told = re.search(r"^spillway_clock_ahead_seconds (\S+)$", client.get("/metrics").content.decode(), re.MULTILINE)
    assert told
    assert (metrics.CLOCK_AHEAD._value.get(), float(told[1])) == pytest.approx((ahead, ahead), abs=1e-3)
