"""Apache Kafka: one real broker that is its own controller (KRaft), from the jars on Maven Central."""

import base64
import socket
import struct
import uuid
from pathlib import Path

from tests.services.packages import maven_libraries, require_java, run
from tests.services.service import Service, choose_port, noted_port

VERSION = "4.1.2"
ARTIFACTS = (f"org.apache.kafka:kafka_2.13:{VERSION}", "org.slf4j:slf4j-simple:1.7.36")
# Length, request 18 (ApiVersions), version 0, correlation 1, no client id.
API_VERSIONS = struct.pack("!ihhih", 10, 18, 0, 1, -1)

PROPERTIES = """\
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""


class Kafka(Service):
    name = "kafka"
    variable = "TEST_KAFKA_SERVERS"
    first_port = 29092
    first_controller_port = 29093
    users: tuple[str, ...] = ()  # with passwords, as the formatter reads them

    def install(self) -> None:
        require_java()
        self.libraries()

    def create(self, data: Path) -> None:
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # Told as one word: an identity may begin with a dash.
        step = ["kafka.tools.StorageTool", "format", f"--cluster-id={identity}", "-c", self.configure(data)]
        step += [word for user in self.users for word in ("--add-scram", user)]
        run(*self.java("-Xmx256m"), *step)

    def command(self) -> list[str]:
        return [*self.java("-Xms256m", "-Xmx768m"), "kafka.Kafka", self.configure(self.data)]

    def configure(self, data: Path) -> str:
        path = self.home / "server.properties"
        port, controller = self.port, self.controller_port
        voters = f"1@127.0.0.1:{controller}"
        path.write_text(PROPERTIES.format(number=1, voters=voters, port=port, controller=controller, data=data))
        return str(path)

    @property
    def controller_port(self) -> int:
        return noted_port(self.home / "controller.port", self.first_controller_port)

    def choose_ports(self) -> None:
        super().choose_ports()
        choose_port(self.home / "controller.port", self.first_controller_port)

    def greet(self, connection: socket.socket) -> bool:
        """A broker answers "which requests do you know?" only once it serves."""
        connection.sendall(API_VERSIONS)
        answer = connection.recv(10)
        return len(answer) == 10 and answer[4:10] == struct.pack("!ih", 1, 0)

    def java(self, *options: str) -> list[str]:
        return ["java", *options, "-cp", f"{self.libraries()}/*"]

    def libraries(self) -> Path:
        return maven_libraries(f"kafka-{VERSION}", ARTIFACTS)
