"""Kafka Connect with the Debezium JDBC sink: a peer for the bench, from Maven Central."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

from tests.services.packages import maven_libraries, require_java
from tests.services.service import Service

CONNECT, DEBEZIUM = "4.2.0", "3.5.0.Final"
# Resolved together: with each connector's libraries apart, two versions of Jackson meet.
ARTIFACTS = (
    *(f"org.apache.kafka:connect-{part}:{CONNECT}" for part in ("runtime", "json", "transforms")),
    f"io.debezium:debezium-connector-jdbc:{DEBEZIUM}",
    "org.slf4j:slf4j-simple:1.7.36",
)
PROPERTIES = """\
bootstrap.servers={servers}
listeners=http://127.0.0.1:{port}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
offset.storage.file.filename={home}/offsets
offset.flush.interval.ms=1000
plugin.discovery=hybrid_warn
"""


class Connect(Service):
    """A standalone worker; it needs the broker at `servers`."""

    name = "connect"
    first_port = 28083
    servers = ""

    def install(self) -> None:
        require_java()
        self.libraries()

    def create(self, data: Path) -> None:
        data.mkdir()

    def command(self) -> list[str]:
        path = self.home / "worker.properties"
        path.write_text(PROPERTIES.format(servers=self.servers, port=self.port, home=self.home))
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        program = "org.apache.kafka.connect.cli.ConnectStandalone"
        return ["java", "-Xms256m", "-Xmx1g", quiet, "-cp", f"{self.libraries()}/*", program, str(path)]

    def greet(self, connection: socket.socket) -> bool:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return connection.recv(12).endswith(b" 200")

    def libraries(self) -> Path:
        return maven_libraries(f"connect-{CONNECT}-jdbc-{DEBEZIUM}", ARTIFACTS)


def ask(port: int, method: str, path: str, body: dict[str, str] | None = None) -> Any:
    """One request to the worker's REST interface."""
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
