"""Kafka Connect with Debezium's connectors, from Maven Central: the way from the outbox table into Kafka."""

import http.client
import json
import os
import socket
from pathlib import Path
from typing import Any

from tests.services.kafka import VERSION, Kafka
from tests.services.packages import maven_libraries, require_java
from tests.services.service import Service

DEBEZIUM = "3.5.0.Final"
CONNECTORS = ("postgres", "mariadb", "mysql")
LOGGING = "org.slf4j:slf4j-simple:1.7.36"

COMMON = """\
listeners=http://127.0.0.1:{port}
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
offset.flush.interval.ms=1000
plugin.discovery=service_load
"""
# Without the delay of five minutes that production wants before a lost worker's connectors move.
PROPERTIES = """\
bootstrap.servers={servers}
group.id=spillway-connect
config.storage.topic=spillway-connect-configs
offset.storage.topic=spillway-connect-offsets
status.storage.topic=spillway-connect-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
offset.storage.partitions=1
status.storage.partitions=1
scheduled.rebalance.max.delay.ms=0
config.providers=env
config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
"""


def artifacts(connect: str, *connectors: str) -> tuple[str, ...]:
    """Resolved together: with each connector's libraries apart, two versions of Jackson meet."""
    return (
        *(f"org.apache.kafka:connect-{part}:{connect}" for part in ("runtime", "json", "transforms")),
        *(f"io.debezium:debezium-connector-{connector}:{DEBEZIUM}" for connector in connectors),
        LOGGING,
    )


class Connect(Service):
    """A distributed worker of one; connectors and their positions live in topics of the broker."""

    name = "connect"
    variable = "TEST_CONNECT_URL"
    first_port = 28083
    needs = ("kafka",)
    program = "org.apache.kafka.connect.cli.ConnectDistributed"
    memory = ("-Xms128m", "-Xmx768m")

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def servers(self) -> str:
        """The broker given by the environment, else the one beside it."""
        return os.environ.get(Kafka.variable) or Kafka(self.root).address

    def install(self) -> None:
        require_java()
        self.libraries()

    def create(self, data: Path) -> None:
        data.mkdir()

    def command(self) -> list[str]:
        path = self.home / "worker.properties"
        path.write_text(self.properties())
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return ["java", *self.memory, quiet, "-cp", f"{self.libraries()}/*", self.program, str(path)]

    def properties(self) -> str:
        return COMMON.format(port=self.port) + PROPERTIES.format(servers=self.servers)

    def greet(self, connection: socket.socket) -> bool:
        """Healthy once it has read its topics: before, a request would only wait."""
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        return connection.recv(12).endswith(b" 200")

    def libraries(self) -> Path:
        return maven_libraries(f"connect-{VERSION}-debezium-{DEBEZIUM}", artifacts(VERSION, *CONNECTORS))


def ask(port: int, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """One request to the worker's REST interface; raises RuntimeError when it is refused."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        told = json.dumps(body) if body else None
        connection.request(method, path, told, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    if answer.status >= 400:
        raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]!r}")
    return json.loads(text) if text else None
