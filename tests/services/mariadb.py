"""MariaDB from the Debian package, and what MySQL shares with it: the binary log, the user, the greeting."""

import os
import shutil
import socket
from pathlib import Path

from tests.services.packages import apt_install, run
from tests.services.service import DATABASE, PASSWORD, USER, Service

# Executed at every start, before the first connection is let in.
FIRST_STATEMENTS = f"""\
CREATE DATABASE IF NOT EXISTS {DATABASE} CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';
GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'%' WITH GRANT OPTION;
"""
HANDSHAKE_VERSION = 10


class MariaDB(Service):
    name = "mariadb"
    variable = "TEST_MARIADB_URL"
    scheme = "mysql"
    first_port = 23306
    # By default 96 MB: full within seconds, and then pages are written out instead of rows taken in.
    redo_log = "--innodb-log-file-size=512M"

    def install(self) -> None:
        # The -core packages hold the programs without the system service, mariadb-client holds mariadb-dump.
        if not all(map(shutil.which, ("mariadbd", "mariadb-install-db", "mariadb-dump"))):
            apt_install("mariadb-server-core", "mariadb-client-core", "mariadb-client")

    def create(self, data: Path) -> None:
        account = ["--user=root"] if os.geteuid() == 0 else []
        normal = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        run("mariadb-install-db", "--no-defaults", *account, f"--datadir={data}", *normal)

    def command(self) -> list[str]:
        return ["mariadbd", "--no-defaults", *self.options()]

    def options(self) -> list[str]:
        statements = self.home / "first.sql"
        statements.write_text(FIRST_STATEMENTS)
        return [
            *(["--user=root"] if os.geteuid() == 0 else []),
            f"--datadir={self.data}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            # Relative to the data directory: the path of a socket may not be longer than 107 characters.
            "--socket=server.sock",
            "--pid-file=server.pid",
            f"--init-file={statements}",
            "--log-bin=binlog",
            "--binlog-format=ROW",
            "--server-id=1",
            # For Debezium. It looks at it within seconds; a day of benchmarks fills a disk.
            "--binlog-expire-logs-seconds=3600",
            "--max-binlog-size=128M",
            "--character-set-server=utf8mb4",
            "--innodb-buffer-pool-size=512M",
            self.redo_log,
            "--max-connections=200",
        ]

    def greet(self, connection: socket.socket) -> bool:
        """The server speaks first; a refusal has 255 where the version of the handshake stands."""
        greeting = connection.recv(5)
        return len(greeting) == 5 and greeting[4] == HANDSHAKE_VERSION
