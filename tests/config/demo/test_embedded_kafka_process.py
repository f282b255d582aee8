"""`manage.py embedded_kafka` as a process, and the proof of every limit it prints."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kafka.errors
import pytest
from django.conf import settings
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from config.demo.embedded_kafka import API_VERSION, LIMITS
from tests.crash.platform import free_port
from tests.prepared import PythonProcess
from tests.services.embedded import CLIENT_OPTIONS, CONSUMER_OPTIONS

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "manage.py", "embedded_kafka"]
PLACE = TopicPartition("orders", 0)


@pytest.fixture
def start() -> Iterator[Callable[..., tuple[str, subprocess.Popen[str]]]]:
    """start(*arguments, **environment): the address and the process of a broker that accepts connections."""
    processes = []

    def run(*arguments: str, **environment: str) -> tuple[str, subprocess.Popen[str]]:
        process = PythonProcess(
            [*COMMAND, *arguments], cwd=ROOT, env={**os.environ, **environment},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        processes.append(process)
        return process.stdout.readline().split()[-1], process

    yield run
    for process in processes:
        process.terminate()
        process.communicate(timeout=20)


@pytest.fixture
def address(start: Callable[..., Any]) -> str:
    return start("--topic", "orders:1")[0]


@pytest.fixture
def producer(address: str) -> Iterator[KafkaProducer]:
    client = KafkaProducer(bootstrap_servers=address, **CLIENT_OPTIONS)
    yield client
    client.close()


def reader_of(address: str, **options: Any) -> KafkaConsumer:
    """A consumer of PLACE from its beginning, without a group unless `group_id` is given."""
    known = {**CONSUMER_OPTIONS, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    reader = KafkaConsumer(bootstrap_servers=address, **{**known, **options})
    reader.subscribe([PLACE.topic]) if "group_id" in options else reader.assign([PLACE])
    return reader


def read(reader: KafkaConsumer, seconds: float = 10) -> list[bytes]:
    """The values of the first poll that brings any."""
    limit = time.monotonic() + seconds
    while not (found := reader.poll(timeout_ms=500)):
        assert time.monotonic() < limit
    return [record.value for records in found.values() for record in records]


def accepts(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_address_and_limits_and_ends_cleanly(start, how):
    port = str(free_port())
    address, process = start("--port", port)
    assert address == f"127.0.0.1:{port}"
    assert accepts(address)
    process.send_signal(how)
    rest, limits = process.communicate(timeout=30)
    assert process.returncode == 0
    assert not rest
    assert limits.splitlines() == [f"- {limit}" for limit in LIMITS.values()]


def test_a_taken_port_is_one_line(address):
    port = address.rpartition(":")[2]
    done = subprocess.run([*COMMAND, "--port", port], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"CommandError: --port {port}: {address} cannot be used: Address already in use\n"
    assert not done.stdout


@pytest.mark.parametrize("arguments", [("--port", "0"), ("--port", "x"), ("--topic", "t"), ("--topic", "t:0")])
def test_a_wrong_argument_is_a_usage_error(arguments):
    done = subprocess.run([*COMMAND, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert repr(arguments[1]) in done.stderr


def test_it_makes_the_projects_topics(start):
    address, _ = start(KAFKA_TOPIC_PREFIX="here.")
    reader = reader_of(address)
    made = {name: len(reader.partitions_for_topic(name)) for name in reader.topics()}
    reader.close()
    assert made == {f"here.{name}": entry["partitions"] for name, entry in settings.KAFKA_TOPICS.items()}


def test_limit_memory_and_clients_survive_a_restart_on_the_same_port(start):
    arguments = ("--port", str(free_port()), "--topic", "orders:1")
    address, first = start(*arguments)
    sender = KafkaProducer(bootstrap_servers=address, **CLIENT_OPTIONS)
    sender.send("orders", b"before").get(10)
    first.kill()
    first.wait()
    assert not accepts(address)
    start(*arguments)
    sender.send("orders", b"after").get(30)
    reader = reader_of(address)
    assert read(reader) == [b"after"]
    sender.close()
    reader.close()


def test_it_ends_with_its_parent():
    parent = "import subprocess, sys, time; subprocess.Popen(sys.argv[1:]); time.sleep(60)"
    command = [sys.executable, "-c", parent, *COMMAND, "--with-parent"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().split()[-1]
        assert accepts(address)
        process.kill()
    limit = time.monotonic() + 20
    while accepts(address):
        assert time.monotonic() < limit


# -- limits: when one of these fails, the broker has learned something and LIMITS is to be shortened -------


def test_limit_clients(address):
    """A client that asks for the version finds no broker; the words say what to set."""
    with pytest.raises(kafka.errors.KafkaError):
        KafkaConsumer(bootstrap_servers=address, bootstrap_timeout_ms=2000)
    reader_of(address).close()
    assert f"KAFKA_API_VERSION={API_VERSION}" in LIMITS["clients"]
    assert tuple(map(int, API_VERSION.split("."))) == CLIENT_OPTIONS["api_version"]


def test_limit_admin(address):
    admin = KafkaAdminClient(bootstrap_servers=address, request_timeout_ms=2000, **CLIENT_OPTIONS)
    with pytest.raises(kafka.errors.KafkaError):
        admin.create_topics({"new": {"num_partitions": 1, "replication_factor": 1}})
    admin.close()


def test_limit_time(address, producer):
    producer.send("orders", b"old", timestamp_ms=1_700_000_000_000).get(10)
    reader = reader_of(address)
    assert reader.offsets_for_times({PLACE: 1_600_000_000_000}) == {PLACE: None}
    reader.close()


def test_limit_transactions(address, producer):
    member = reader_of(address, group_id="g", isolation_level="read_committed")
    sender = KafkaProducer(bootstrap_servers=address, transactional_id="t", **CLIENT_OPTIONS)
    sender.init_transactions()
    sender.begin_transaction()
    sender.send("orders", b"aborted").get(10)
    assert read(member) == [b"aborted"]
    sender.abort_transaction()
    sender.begin_transaction()
    sender.send_offsets_to_transaction({PLACE: OffsetAndMetadata(1, "", -1)}, member.group_metadata())
    sender.commit_transaction()
    assert member.committed(PLACE) is None
    sender.close()
    member.close()


def test_limit_retention(address, producer):
    for _ in range(12):
        producer.send("orders", bytes(500_000)).get(10)
    reader = reader_of(address)
    kept = 12 - reader.beginning_offsets([PLACE])[PLACE]
    reader.close()
    assert kept == 10
