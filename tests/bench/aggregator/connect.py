"""Kafka Connect with the Debezium JDBC sink: a peer for the bench."""

from __future__ import annotations

from pathlib import Path

from tests.services.connect import COMMON, DEBEZIUM, Connect, artifacts
from tests.services.packages import maven_libraries

VERSION = "4.2.0"
PROPERTIES = """\
bootstrap.servers={servers}
offset.storage.file.filename={home}/offsets
"""


class Sink(Connect):
    """A standalone worker on the broker at `servers`."""

    name = "sink"
    first_port = 28183
    program = "org.apache.kafka.connect.cli.ConnectStandalone"
    memory = ("-Xms256m", "-Xmx1g")
    servers = ""

    def properties(self) -> str:
        return COMMON.format(port=self.port) + PROPERTIES.format(servers=self.servers, home=self.home)

    def libraries(self) -> Path:
        return maven_libraries(f"connect-{VERSION}-jdbc-{DEBEZIUM}", artifacts(VERSION, "jdbc"))
