"""Apache Cassandra: one node, the throttler's second store, from the jars on Maven Central."""

import socket
import struct
from pathlib import Path

from tests.services.packages import maven_libraries, require_java
from tests.services.service import Service, choose_port, noted_port

VERSION = "5.0.4"
ARTIFACTS = (f"org.apache.cassandra:cassandra-all:{VERSION}",)
# A frame of version 4: no flags, stream 0, request 5 (OPTIONS), no body; 6 (SUPPORTED) is the answer.
OPTIONS = struct.pack("!BBhBi", 4, 0, 0, 5, 0)
SUPPORTED = 6

CONFIGURATION = """\
cluster_name: spillway
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
native_transport_port: {port}
storage_port: {storage}
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "127.0.0.1:{storage}"
{sync}
# A keyspace that a test drops leaves nothing behind.
auto_snapshot: false
"""
LOGGING = """\
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger{36} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
"""
# What its own jvm17-server.options opens: without these it ends while starting.
EXPORTED = (
    *(f"java.base/{package}" for package in ("java.lang.ref", "jdk.internal.misc")),
    *(f"java.rmi/sun.rmi.{package}" for package in ("registry", "server")),
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.sql/java.sql",
    "jdk.attach/sun.tools.attach",
    "jdk.unsupported/sun.misc",
)
OPENED = (
    *(f"java.base/java.{package}" for package in ("io", "lang", "lang.module", "lang.reflect", "util")),
    *(f"java.base/jdk.internal.{part}" for part in ("loader", "math", "module", "ref", "reflect", "util.jar")),
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
)


class Cassandra(Service):
    """It waits for no other node: there is none. Killed, it forgets what it took in the last tenth of a second."""

    name = "cassandra"
    variable = "TEST_CASSANDRA_URL"
    first_port = 29042
    first_storage_port = 29043
    sync = "commitlog_sync: periodic\ncommitlog_sync_period: 10s"
    memory = ("-Xms256m", "-Xmx512m", "-XX:+ExitOnOutOfMemoryError")

    @property
    def address(self) -> str:
        """Without a keyspace: each test makes one of its own."""
        return f"cassandra://127.0.0.1:{self.port}"

    def install(self) -> None:
        require_java()
        self.libraries()

    def create(self, data: Path) -> None:
        data.mkdir()

    def command(self) -> list[str]:
        told = self.configure()
        libraries = self.libraries()
        agent = next(libraries.glob("jamm-*.jar"))
        program = ["-cp", f"{libraries}/*", "org.apache.cassandra.service.CassandraDaemon"]
        return ["java", *self.memory, f"-javaagent:{agent}", *opened(), *told, *program]

    def configure(self) -> list[str]:
        """Its two files, as the options that name them."""
        configuration, logging = self.home / "cassandra.yaml", self.home / "logback.xml"
        configuration.write_text(CONFIGURATION.format(port=self.port, storage=self.storage_port, sync=self.sync))
        logging.write_text(LOGGING)
        alone = {
            "ring_delay_ms": "0", "skip_wait_for_gossip_to_settle": "0", "storagedir": str(self.data),
            # By default 2: the thread that looks at the clock takes more of a processor than the tests' statements.
            "approximate_time_precision_ms": "50",
        }  # fmt: skip
        return [
            f"-Dcassandra.config={configuration.as_uri()}",
            f"-Dlogback.configurationFile={logging}",
            "-Dcassandra-foreground=yes",
            "-Djdk.attach.allowAttachSelf=true",
            "-Dio.netty.tryReflectionSetAccessible=true",
            *(f"-Dcassandra.{name}={value}" for name, value in alone.items()),
        ]

    @property
    def storage_port(self) -> int:
        return noted_port(self.home / "storage.port", self.first_storage_port)

    def choose_ports(self) -> None:
        super().choose_ports()
        choose_port(self.home / "storage.port", self.first_storage_port)

    def greet(self, connection: socket.socket) -> bool:
        """A node listens to clients only once it serves them."""
        connection.sendall(OPTIONS)
        answer = connection.recv(9)
        return len(answer) == 9 and answer[4] == SUPPORTED

    def libraries(self) -> Path:
        return maven_libraries(f"cassandra-{VERSION}", ARTIFACTS)


def opened() -> list[str]:
    """The options of Java without which neither the server nor its tools start."""
    exported = [f"--add-exports={name}=ALL-UNNAMED" for name in EXPORTED]
    return [*exported, *(f"--add-opens={name}=ALL-UNNAMED" for name in OPENED)]
