"""Three nodes of Cassandra on this machine's loopback addresses, of which a test may kill some and start them again."""

from __future__ import annotations

import signal
import socket
from contextlib import closing
from pathlib import Path

from tests.crash.platform import free_port
from tests.crash.wire import wait_for
from tests.services.cassandra import Cassandra, opened
from tests.services.packages import run

NUMBERS = (1, 2, 3)
TOKENS = (-(2**63), -(2**63) // 3, 2**63 // 3)  # a third of the ring each


class RingNode(Cassandra):
    """All nodes of a ring have the same ports, each on an address of its own."""

    memory = ("-Xms256m", "-Xmx384m", "-XX:+ExitOnOutOfMemoryError")
    stop_signal = signal.SIGKILL
    patience = 120.0

    def __init__(self, root: Path, number: int, ports: tuple[int, int], control: int) -> None:
        super().__init__(root)
        self.number, self.ports, self.control = number, ports, control
        self.host = f"127.0.0.{number}"

    @property
    def port(self) -> int:
        return self.ports[0]

    @property
    def storage_port(self) -> int:
        return self.ports[1]

    def choose_ports(self) -> None:
        """The ring has chosen."""

    def configure(self) -> list[str]:
        options = super().configure()
        configuration = self.home / "cassandra.yaml"
        text = configuration.read_text()
        for name in ("listen_address", "rpc_address"):
            text = text.replace(f"{name}: 127.0.0.1", f"{name}: {self.host}")
        seeds = ",".join(f"127.0.0.{number}:{self.storage_port}" for number in NUMBERS)
        text = text.replace(f'seeds: "127.0.0.1:{self.storage_port}"', f'seeds: "{seeds}"')
        configuration.write_text(f"{text}initial_token: {TOKENS[self.number - 1]}\nauto_bootstrap: false\n")
        return [*options, f"-Dcassandra.jmx.local.port={self.control}"]

    def ready(self) -> bool:
        try:
            with closing(socket.create_connection((self.host, self.port), timeout=2)) as connection:
                return self.greet(connection)
        except OSError:
            return False


class Ring:
    """A cluster; leaving the `with` block ends it."""

    def __init__(self, folder: Path) -> None:
        ports = free_port(), free_port()
        self.nodes = {number: RingNode(folder / str(number), number, ports, free_port()) for number in NUMBERS}

    def __enter__(self) -> Ring:
        try:
            for node in self.nodes.values():  # one after the other: two that begin at once do not see each other
                node.start()
            self.await_sight()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        for node in self.nodes.values():
            node.stop()

    @property
    def address(self) -> str:
        """Of all nodes, without a keyspace."""
        hosts = ",".join(node.host for node in self.nodes.values())
        return f"cassandra://{hosts}:{self.nodes[1].port}"

    def kill(self, *numbers: int) -> None:
        """SIGKILL."""
        for number in numbers:
            self.nodes[number].process.stop(signal.SIGKILL, seconds=10)

    def start(self, *numbers: int) -> None:
        for number in numbers:
            self.nodes[number].start()
        self.await_sight()

    def await_sight(self) -> None:
        """Until each node that runs sees all of those."""
        running = [number for number, node in self.nodes.items() if node.process.pid]
        for number in running:
            wait_for(
                lambda: self.nodetool(number, "status").count("\nUN ") == len(running), 60, "nodes to see each other"
            )

    def nodetool(self, number: int, *arguments: str) -> str:
        """What Cassandra's own tool says."""
        node = self.nodes[number]
        program = ["java", "-Xmx128m", *opened(), "-cp", f"{node.libraries()}/*", "org.apache.cassandra.tools.NodeTool"]
        return run(*program, "-h", "127.0.0.1", "-p", str(node.control), *arguments)
