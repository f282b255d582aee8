"""A MariaDB or MySQL that writes and a replica that has each commit before it is acknowledged; the replica can take over."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NamedTuple

from tests.crash import databases
from tests.crash.wire import wait_for
from tests.services.mariadb import MariaDB
from tests.services.mysql import MySQL
from tests.services.service import DATABASE, PASSWORD, USER

APP = "app"  # name and password of one who may not write where only replication does
LONG = 60_000  # milliseconds that a commit waits for the replica before it goes on without


class Dialect(NamedTuple):
    """What the two say differently."""

    kind: type[MariaDB]
    role: str  # of who writes, in the names of variables
    options: tuple[str, ...]  # of both servers
    primary: tuple[str, ...]
    standby: tuple[str, ...]
    follow: str
    only_read: str


MARIADB = Dialect(
    MariaDB, "master", (),
    ("--rpl-semi-sync-master-wait-point=AFTER_SYNC", f"--rpl-semi-sync-master-timeout={LONG}"),
    ("--rpl-semi-sync-slave-enabled=ON",),
    "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='{user}', MASTER_PASSWORD='{password}', "
    "MASTER_USE_GTID=slave_pos",
    "SET GLOBAL read_only = ON",
)  # fmt: skip
MYSQL = Dialect(
    MySQL, "source", ("--gtid-mode=ON", "--enforce-gtid-consistency=ON"),
    ("--plugin-load-add=semisync_source.so", f"--loose-rpl-semi-sync-source-timeout={LONG}"),
    ("--plugin-load-add=semisync_replica.so", "--loose-rpl-semi-sync-replica-enabled=ON"),
    "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={port}, SOURCE_USER='{user}', "
    "SOURCE_PASSWORD='{password}', SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1",
    "SET GLOBAL super_read_only = ON",
)  # fmt: skip


class ReplicatedPair:
    """Two servers of which one writes; leaving the `with` block ends both. `url` is that of an account without privileges."""

    def __init__(self, dialect: Dialect, folder: Path) -> None:
        self.dialect = dialect
        self.primary = member(dialect, folder / "primary", 1, dialect.primary)
        self.standby = member(dialect, folder / "standby", 2, dialect.standby)

    def __enter__(self) -> ReplicatedPair:
        self.primary.start()
        self.standby.start()
        follow = self.dialect.follow.format(port=self.primary.port, user=USER, password=PASSWORD)
        for statement in (follow, "START REPLICA", self.dialect.only_read):
            self._on_standby(statement)
        wait = f"SET GLOBAL rpl_semi_sync_{self.dialect.role}_enabled = ON"
        account = f"CREATE USER '{APP}'@'%' IDENTIFIED BY '{APP}'"
        for statement in (wait, account, f"GRANT ALL ON {DATABASE}.* TO '{APP}'@'%'"):
            databases.run(self.primary.address, statement)
        waits = f"SHOW GLOBAL STATUS LIKE 'rpl_semi_sync_{self.dialect.role}_status'"
        wait_for(
            lambda: databases.rows(self.primary.address, waits)[0][1] == "ON", 30, "commits to wait for the replica"
        )
        return self

    def __exit__(self, *exc_info: object) -> None:
        for server in (self.standby, self.primary):
            server.stop()

    def url(self, server: MariaDB) -> str:
        return server.address.replace(f"{USER}:{PASSWORD}@", f"{APP}:{APP}@")

    def kill(self) -> None:
        """The one that writes, by SIGKILL."""
        pid = self.primary.process.pid
        assert pid
        os.kill(pid, signal.SIGKILL)

    def replay(self, *, goes_on: bool) -> None:
        """Let what arrives wait, or be applied; commits of the primary do not wait for that."""
        self._on_standby(f"{'START' if goes_on else 'STOP'} REPLICA SQL_THREAD")

    def promote(self) -> None:
        """Returns when the replica has applied all that it received, and writes."""
        self._on_standby("STOP REPLICA IO_THREAD")
        wait_for(self._is_applied, 60, "the replica to apply what it received")
        for statement in ("STOP REPLICA", "RESET REPLICA ALL", "SET GLOBAL read_only = OFF"):
            self._on_standby(statement)

    def _is_applied(self) -> bool:
        (state,) = databases.rows(self.standby.address, "SHOW REPLICA STATUS")
        return any("has read all relay log" in str(value) for value in state)

    def _on_standby(self, statement: str) -> None:
        databases.run(self.standby.address, statement)


def member(dialect: Dialect, folder: Path, number: int, more: tuple[str, ...]) -> MariaDB:
    """One of the two; a later option of the same name counts."""

    class Member(dialect.kind):  # type: ignore[name-defined,misc]
        def options(self) -> list[str]:
            return [*super().options(), f"--server-id={number}", *dialect.options, *more]

    server: MariaDB = Member(folder)
    return server
