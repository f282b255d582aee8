"""Drills about what the database stands on: its disk is full, or all that is left of it is a backup."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.crash import databases
from tests.crash.wire import wait_for
from tests.drills.client import Client
from tests.drills.stage import Drill, Plan, Stage
from tests.services.mariadb import MariaDB
from tests.services.postgres import Postgres
from tests.services.service import Service

SIZE, LARGER = "size=600m", "size=1200m"
MEGABYTE = bytes(1024 * 1024)
EVERYBODY = ("ingest_events", "flush_buffer", "track_inventory", "ingest_messages", "relay_outbox", "run_throttler")


class SmallPostgres(Postgres):
    first_port = Postgres.first_port + 3

    def command(self) -> list[str]:
        return [*super().command(), "-c", "max_wal_size=64MB", "-c", "min_wal_size=32MB"]


class SmallMariaDB(MariaDB):
    first_port = MariaDB.first_port + 3
    redo_log = "--innodb-log-file-size=64M"


class DiskFull(Drill):
    """Nothing is written until there is room; then everything goes on by itself, and nothing is missing."""

    alerts = ("SpillwayIngestLag",)
    staged = "the disk of the database is full to its last byte; web and workers stay"
    workers = (*((name,) for name in EVERYBODY), ("beat",))
    flow = ""
    settings = {"BUFFER_IDLE_SECONDS": "2", "BUFFER_CAP_SECONDS": "4"}

    def refusal(self, plan: Plan) -> str:
        if os.geteuid() != 0:
            return "a disk of its own needs root (mount)"
        return "" if server_for(plan) else "it has a PostgreSQL or a MariaDB of its own: name one by --database"

    @contextmanager
    def around(self, stage: Stage) -> Iterator[None]:
        with tempfile.TemporaryDirectory(prefix="spillway-drill-") as name, disk(Path(name)) as self.folder:
            server = server_for(stage.plan)
            assert server
            self.server = server(self.folder)
            self.server.start()
            try:
                stage.environment["DATABASE_URL"] = self.server.address
                stage.platform.manage("migrate", "--verbosity", "0")
                yield
            finally:
                mount("-o", f"remount,{LARGER}", str(self.folder))  # a server that is full does not end
                self.server.stop()

    def fail(self, stage: Stage) -> None:
        stage.first_mail(120)
        self.client = Client(self.server.address)
        wait_for(lambda: len(self.client.kept) > 100, 60, "a hundred commits")
        with (self.folder / "filling").open("wb") as filling:
            fill(filling.fileno())

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.say(f"the server {'runs' if self.server.running() else 'has ended'}; $ mount -o remount,{LARGER}")
        mount("-o", f"remount,{LARGER}", str(self.folder))
        if not self.server.running():
            stage.say("$ systemctl start postgresql")
            self.server.start()
        kept = len(self.client.kept)
        wait_for(lambda: len(self.client.kept) > kept + 10, 120, "commits again")
        self.client.close()
        missing = self.client.missing(self.server.address)
        stage.say(f"a client beside them: {len(self.client.kept)} commits acknowledged, {len(missing)} of them missing, "
                  f"{self.client.pause:.0f} s without one")  # fmt: skip
        assert not missing
        for name in [name for name, worker in stage.living.items() if not worker.alive]:
            stage.say(f"its supervisor starts {name} again")
            stage.start(name)


def server_for(plan: Plan) -> type[Service] | None:
    """Which server of its own is of the same kind."""
    if plan.url.startswith("postgres"):
        return SmallPostgres
    return SmallMariaDB if plan.url == databases.known().get("mariadb") else None


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """A file system of its own in that folder; only whoever is root may make one."""
    mount("-t", "tmpfs", "-o", SIZE, "spillway-drill", str(folder))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def fill(descriptor: int) -> None:
    """Until not a byte is left."""
    part = MEGABYTE
    while part:
        try:
            os.write(descriptor, part)
        except OSError:
            part = part[: len(part) // 2]


# docs/backup.md#restore: the backup, then what restores it.
BACKUPS = {
    "postgres": (
        "pg_dump --format=custom --file=spillway.dump {name}",
        "createdb --encoding=UTF8 --template=template0 {name}",
        "pg_restore --exit-on-error --no-owner --dbname={name} spillway.dump",
    ),
    "mysql": (
        "mariadb-dump --single-transaction --skip-add-locks {name} > spillway.sql",
        'mariadb -e "CREATE DATABASE {name} CHARACTER SET utf8mb4"',
        "mariadb {name} < spillway.sql",
    ),
}


class BackupRestored(Drill):
    """The database is older than Kafka afterwards: what was sent since is known from the output topic, and not sent again."""

    alerts = ("SpillwayWebMissing",)
    staged = "the database is lost; what is left is a backup, and mails, batches and records that are newer"
    workers = (*((name,) for name in EVERYBODY), ("beat",))
    flow = ""
    settings = {"BUFFER_IDLE_SECONDS": "1", "BUFFER_CAP_SECONDS": "2"}

    def refusal(self, plan: Plan) -> str:
        known = databases.known()
        if plan.url not in (known.get("postgres"), known.get("mariadb")):
            return "it restores a PostgreSQL or a MariaDB: name one by --database"
        lost = [
            command.split()[0] for command in BACKUPS[urlsplit(plan.url).scheme] if not shutil.which(command.split()[0])
        ]
        return f"not installed: {', '.join(lost)}" if lost else ""

    def fail(self, stage: Stage) -> None:
        self.server = Programs(stage)
        flusher = stage.living["flush_buffer"]
        wait_for(lambda: stage.sink.accepted and flusher.count("publish_batches_total"), 180, "a mail and a batch")
        self.server.run(*BACKUPS[self.server.kind][:1])
        mails, batches = len(stage.sink.accepted), flusher.count("publish_batches_total")
        wait_for(lambda: len(stage.sink.accepted) > mails + 20, 120, "mails that the backup does not know")
        wait_for(lambda: flusher.count("publish_batches_total") > batches + 10, 120, "batches that it does not know")
        self.server.drop()

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.say("every worker, beat and web are stopped, and whoever else writes orders")
        traffic = stage.living.pop("traffic")
        traffic.freeze()
        for worker in stage.living.values():
            worker.stop()
        self.server.run(*BACKUPS[self.server.kind][1:])
        stage.manage("migrate", "--verbosity", "0")
        before = stage.platform.manage("verify", "--kafka", check=False)
        stage.say(f"$ python manage.py verify --kafka ends with {before.returncode}, as it has to by now")
        for command in ("ingest_events", "track_inventory", "ingest_messages"):
            stage.manage(command, "--once")
        self._adds_up(stage)
        stage.living["traffic"] = traffic
        traffic.thaw()
        stage.start_web()
        for command in self.workers:
            stage.start(*command)
        wait_for(lambda: stage.living["relay_outbox"].count("delivery_total", outcome="sent") > 20, 120, "mails again")
        twice = sum(number > 1 for number in stage.sink.counts().values())
        stage.say(
            f"of {len(stage.sink.counts())} mails {twice} arrived twice, as those do that the backup has as pending"
        )

    def _adds_up(self, stage: Stage) -> None:
        done = stage.platform.manage("verify", "--kafka", check=False)
        wrong = [line for line in done.stdout.splitlines() if not line.startswith("ok")]
        stage.say(f"$ python manage.py verify --kafka: {' / '.join(wrong)[:600]}")
        assert not done.returncode, "the runbook's verify does not hold"


class Programs:
    """The server's own programs, led to it as files of options would."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.url = stage, stage.environment["DATABASE_URL"]
        where = urlsplit(self.url)
        self.kind, self.name = where.scheme, where.path.strip("/")
        self.folder = stage.platform.directory
        names = {"host": where.hostname, "port": where.port, "user": where.username, "password": where.password}
        self.environment = {**os.environ, "HOME": str(self.folder)} | {
            f"PG{name.upper()}": str(it) for name, it in names.items()
        }
        (self.folder / ".my.cnf").write_text("[client]\n" + "".join(f"{name}={it}\n" for name, it in names.items()))

    def run(self, *commands: str) -> None:
        for command in commands:
            words = command.format(name=self.name)
            self.stage.say(f"$ {words}")
            shell = ["bash", "-o", "pipefail", "-ec", words]
            done = subprocess.run(
                shell, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
            )
            assert not done.returncode, done.stderr[-1000:]

    def drop(self) -> None:
        server = self.stage.plan.url
        databases.drop(server, f"DROP DATABASE {self.name}{' WITH (FORCE)' if self.kind == 'postgres' else ''}")
