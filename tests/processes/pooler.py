"""PgBouncer as deploy/pgbouncer sets it up, and a pair of PostgreSQL servers behind it: one writes, one stands by."""

from __future__ import annotations

import configparser
import os
import shutil
import signal
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

from tests.crash.platform import free_port
from tests.crash.wire import wait_for
from tests.services.postgres import OWNER, Postgres
from tests.services.service import PASSWORD, USER
from tests.tree import ROOT

EXAMPLE = ROOT / "deploy" / "pgbouncer"
STANDBY = "standby"


def program() -> str:
    """Where PgBouncer is installed; "" where it is not."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin") or ""


def role_settings() -> list[str]:
    """The statements of deploy/pgbouncer/role.sql."""
    return [line for line in (EXAMPLE / "role.sql").read_text().splitlines() if line.startswith("ALTER ROLE")]


class PgBouncer:
    """The example, but for the place of things; leaving the `with` block ends it."""

    def __init__(self, folder: Path, server: str, user: str) -> None:
        """Before the server of the URL `server`; the password of `user` is its name."""
        self.folder, self.user, self.port = folder, user, free_port()
        self.file = folder / "pgbouncer.ini"
        self.log = folder / "pgbouncer.log"
        self._configure(server)

    def __enter__(self) -> PgBouncer:
        command = [program(), str(self.file)]
        if os.geteuid() == 0:  # which it refuses
            keep = ["--inh-caps", "+dac_override", "--ambient-caps", "+dac_override"]
            command = ["setpriv", "--reuid", "nobody", "--clear-groups", *keep, "--", *command]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for(lambda: "process up" in self.log.read_text(), 30, "PgBouncer")
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.process.terminate()
        self.process.wait(20)

    def url(self, database: str) -> str:
        where = f"{self.user}:{self.user}@127.0.0.1:{self.port}"
        return f"postgres://{where}/{database}?disable_server_side_cursors=True"

    def turn_to(self, server: str) -> None:
        """Name another server, and reload."""
        self._configure(server)
        self.process.send_signal(signal.SIGHUP)

    def _configure(self, server: str) -> None:
        where = urlsplit(server)
        users = self.folder / "users.txt"
        users.write_text(f'"{self.user}" "{self.user}"\n')
        settings = configparser.ConfigParser(inline_comment_prefixes=None)
        settings.read(EXAMPLE / "pgbouncer.ini")
        settings["databases"] = {"*": f"host={where.hostname} port={where.port}"}
        settings["pgbouncer"].update(listen_port=str(self.port), auth_file=str(users))
        with self.file.open("w") as output:
            settings.write(output)


class Primary(Postgres):
    """It acknowledges a commit when the standby has it on its disk, too."""

    def command(self) -> list[str]:
        return [*super().command(), "-c", f"synchronous_standby_names={STANDBY}"]

    def kill(self) -> None:
        """All of its processes at once, as a machine ends that loses its power."""
        pid = self.process.pid
        assert pid
        os.kill(pid, signal.SIGSTOP)  # it would answer the death of a session
        subprocess.run(["pkill", "-KILL", "-P", str(pid)], check=True)
        os.kill(pid, signal.SIGKILL)


class Standby(Postgres):
    """A copy of `primary` that follows its log."""

    first_port = Postgres.first_port + 1

    def __init__(self, root: Path, primary: Postgres) -> None:
        super().__init__(root)
        self.primary = primary

    def create(self, data: Path) -> None:
        data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(data, OWNER, OWNER)
        source = f"host=127.0.0.1 port={self.primary.port} user={USER} password={PASSWORD} dbname=postgres"
        self.run("pg_basebackup", "-D", str(data), "-R", "-X", "stream", "--checkpoint=fast",
                 "-d", f"{source} application_name={STANDBY}")  # fmt: skip

    def replay(self, *, goes_on: bool) -> None:
        """Let what arrives wait, or be applied; commits of the primary do not wait for that."""
        signal_name = "-CONT" if goes_on else "-STOP"
        subprocess.run(["pkill", signal_name, "-P", str(self.process.pid), "-f", "startup"], check=True)

    def promote(self) -> None:
        """Returns when it writes."""
        self.run("pg_ctl", "promote", "-w", "-D", str(self.data))


class Pair:
    """Two servers of which one writes; leaving the `with` block ends both."""

    def __init__(self, folder: Path) -> None:
        self.primary = Primary(folder / "primary")
        self.standby = Standby(folder / "standby", self.primary)

    def __enter__(self) -> Pair:
        self.primary.start()
        self.standby.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        for server in (self.standby, self.primary):
            server.stop()
