"""Three brokers of Apache Kafka, each its own controller, of which a test may kill some and start them again."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import uuid
from pathlib import Path

import kafka
import kafka.errors
import pytest

from tests.crash.platform import free_port
from tests.crash.wire import wait_for
from tests.services.kafka import ARTIFACTS, PROPERTIES, VERSION, Kafka
from tests.services.packages import maven_libraries

NUMBERS = (1, 2, 3)
# Each write is on two of three before it is acknowledged. Who is silent for four seconds is out. Of a name that stands
# twice the last value counts.
CLUSTER = """\
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
offsets.topic.num.partitions=6
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
transaction.state.log.num.partitions=6
share.coordinator.state.topic.replication.factor=3
share.coordinator.state.topic.min.isr=2
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=1000
replica.lag.time.max.ms=4000
"""


class Brokers:
    """A cluster; leaving the `with` block ends it."""

    def __init__(self, folder: Path) -> None:
        if not os.environ.get(Kafka.variable) or not shutil.which("java"):
            pytest.skip(
                "TEST_KAFKA_SERVERS names no Apache Kafka, or Java is not installed: there is no broker to kill"
            )
        self.folder = folder
        self.ports = {number: (free_port(), free_port()) for number in NUMBERS}
        self.living: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Brokers:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        for number in NUMBERS:
            self._configure(number)
            self._java(
                "-Xmx128m", "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", self._file(number)
            ).wait(60)
        self.start(*NUMBERS)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number in list(self.living):
            self.kill(number)

    @property
    def servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port, _controller in self.ports.values())

    def start(self, *numbers: int) -> None:
        """Start these, and wait until all that were started are members."""
        for number in numbers:
            self.living[number] = self._java("-Xms128m", "-Xmx384m", "kafka.Kafka", self._file(number))
        wait_for(lambda: self.members() == set(self.living), 120, f"brokers {sorted(self.living)} to be members", 0.5)

    def kill(self, number: int) -> None:
        """SIGKILL."""
        process = self.living.pop(number)
        process.kill()
        process.wait()

    def members(self) -> set[int]:
        """Those that the cluster knows to be there; nobody while none answers."""
        try:
            admin = kafka.KafkaAdminClient(bootstrap_servers=self.servers.split(","), bootstrap_timeout_ms=2_000)
        except kafka.errors.KafkaError:
            return set()
        try:
            return {broker["broker_id"] for broker in admin.describe_cluster()["brokers"]}
        except kafka.errors.KafkaError:
            return set()
        finally:
            admin.close()

    def _configure(self, number: int) -> None:
        home = self.folder / str(number)
        home.mkdir(parents=True)
        voters = ",".join(f"{one}@127.0.0.1:{controller}" for one, (_port, controller) in self.ports.items())
        port, controller = self.ports[number]
        places = {"port": port, "controller": controller, "data": home / "data"}
        (home / "server.properties").write_text(PROPERTIES.format(number=number, voters=voters, **places) + CLUSTER)

    def _file(self, number: int) -> str:
        return str(self.folder / str(number) / "server.properties")

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        heap = [argument for argument in arguments if argument.startswith("-X")]
        libraries = maven_libraries(f"kafka-{VERSION}", ARTIFACTS)
        command = ["java", *heap, "-cp", f"{libraries}/*", *arguments[len(heap) :]]
        with (self.folder / "brokers.log").open("ab") as output:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
