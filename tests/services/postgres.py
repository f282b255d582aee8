"""PostgreSQL from the Debian package, with logical decoding switched on for change data capture."""

import os
import shutil
import signal
import socket
import struct
import time
from pathlib import Path

from tests.services.packages import apt_install, run
from tests.services.process import birth
from tests.services.service import DATABASE, PASSWORD, USER, Service, Unavailable

OWNER = "postgres"
# Read by a single-user server before the real one opens its port: whoever can connect finds everything there.
FIRST_STATEMENTS = f"""\
CREATE ROLE {USER} LOGIN CREATEDB CREATEROLE REPLICATION PASSWORD '{PASSWORD}'
CREATE DATABASE {DATABASE} OWNER {USER}
"""


class Postgres(Service):
    name = "postgres"
    variable = "TEST_POSTGRES_URL"
    scheme = "postgres"
    first_port = 25432
    stop_signal = signal.SIGINT  # "fast": sessions are ended, the data is checkpointed

    def install(self) -> None:
        if programs() is None:
            apt_install("postgresql")

    def launch(self) -> None:
        self.await_burial()
        super().launch()

    def await_burial(self, seconds: float = 15) -> None:
        """PostgreSQL takes a killed server for alive, by its lock file, until somebody has reaped it."""
        lock = self.data / "postmaster.pid"
        pid = int(lock.read_text().split()[0]) if lock.exists() else 0
        deadline = time.monotonic() + seconds
        while pid and Path(f"/proc/{pid}").exists() and birth(pid) is None and time.monotonic() < deadline:
            time.sleep(0.1)

    def create(self, data: Path) -> None:
        data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(data, OWNER, OWNER)
        # No socket is opened, so only the rule for hosts counts.
        auth = ["--auth-local=trust", "--auth-host=scram-sha-256"]
        self.run("initdb", "-D", str(data), "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", *auth)
        self.run("postgres", "--single", "-D", str(data), "postgres", told=FIRST_STATEMENTS)

    def command(self) -> list[str]:
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "wal_level": "logical",
            # A slot that a killed test left behind must not keep the log until the disk is full.
            "max_slot_wal_keep_size": "2GB",
            "max_replication_slots": 30,
            "max_wal_senders": 30,
            "max_connections": 200,
            "fsync": "on",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return self.as_owner("postgres", "-D", str(self.data), *options)

    def greet(self, connection: socket.socket) -> bool:
        """To a start-up packet a server still recovering says error (E), a ready one asks who we are (R)."""
        body = struct.pack("!i", 196608) + f"user\0{USER}\0database\0{DATABASE}\0\0".encode()
        connection.sendall(struct.pack("!i", len(body) + 4) + body)
        return connection.recv(1) == b"R"

    def run(self, program: str, *arguments: str, told: str = "") -> None:
        run(*self.as_owner(program, *arguments), told=told)

    def as_owner(self, program: str, *arguments: str) -> list[str]:
        """PostgreSQL refuses root; the one capability lets its user into a checkout in a private place."""
        directory = programs()
        if directory is None:
            raise Unavailable("PostgreSQL is not installed")
        command = [str(directory / program), *arguments]
        if os.geteuid() != 0:
            return command
        become = ["--reuid", OWNER, "--regid", OWNER, "--init-groups"]
        keep = ["--inh-caps", "+dac_override", "--ambient-caps", "+dac_override"]
        return ["setpriv", *become, *keep, "--", *command]


def programs() -> Path | None:
    """The newest PostgreSQL on this machine."""
    installed = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    newest = max(installed, key=lambda path: int(path.parts[-3]), default=None) or shutil.which("postgres")
    return Path(newest).parent if newest else None
