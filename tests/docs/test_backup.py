"""The backups that docs/backup.md shows: made with rows in every table, restored, and judged by `verify`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import connection

from tests.databases import UTF8, drop_database, empty_database, execute, run_with, url_of
from tests.services.mysql import CLIENTS, loaded
from tests.tree import ROOT, read

pytestmark = pytest.mark.django_db
ROWS = re.compile(r"^\| (PostgreSQL|MariaDB|MySQL|SQLite) \| (.+) \| (.+) \|$", re.MULTILINE)
NOTES = re.compile(r"(?<!`)(`+)((?:grep|sed) .+?)(?<!`)\1(?!`)")
PROGRAMS = {
    "PostgreSQL": ("pg_dump", "createdb", "pg_restore"),
    "MariaDB": ("mariadb-dump", "mariadb"),
    "MySQL": ("mysqldump", "mysql"),
    "SQLite": ("sqlite3",),
}


class Place:
    """A folder in which the commands of the page work: `spillway` is a database of this run alone."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.name = "spillway" if connection.vendor == "sqlite" else urlsplit(url).path.lstrip("/")
        self.other = f"{self.name}_b"

    def run(self, command: str, name: str = "") -> subprocess.CompletedProcess[str]:
        """As it stands there, but for the name of the database and where the server is."""
        command = re.sub(r"(?<=[ `=])spillway(?=$|[ `])", name or self.name, command)
        shell = ["bash", "-o", "pipefail", "-ec", command]
        return subprocess.run(shell, cwd=self.folder, env=self.server(), capture_output=True, text=True, check=False)

    def server(self) -> dict[str, str]:
        """Variables that lead the programs to it, as a file of options would."""
        said = connection.settings_dict
        if connection.vendor == "postgresql":
            names = {"PGHOST": "HOST", "PGPORT": "PORT", "PGUSER": "USER", "PGPASSWORD": "PASSWORD"}
            return {**os.environ, **{variable: str(said[name]) for variable, name in names.items()}}
        if connection.vendor == "mysql":
            for program in PROGRAMS[vendor()]:
                options = f"-h{said['HOST']} -P{said['PORT']} -u{said['USER']} -p{said['PASSWORD']}"
                wrapper = self.folder / "bin" / program
                wrapper.parent.mkdir(exist_ok=True)
                wrapper.write_text(f'#!/bin/sh\nexec {shlex.join(where(program))} {options} "$@"\n')
                wrapper.chmod(0o755)
        return {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}

    def begin_other(self) -> None:
        drop_database(self.other)
        execute(f"CREATE DATABASE {self.other} {UTF8['mysql']}")


@pytest.fixture(scope="module")
def place(django_db_setup: None, django_db_blocker: Any, tmp_path_factory: Any) -> Iterator[Place]:
    """With rows in every table."""
    with django_db_blocker.unblock(), ExitStack() as stack:
        if missing := [program for program in PROGRAMS[vendor()] if not where(program)]:
            pytest.skip(f"NO BACKUP OF {vendor()} WAS TRIED: no {', '.join(missing)} here (make services installs it)")
        folder = tmp_path_factory.mktemp("backup")
        made = Place(folder, stack.enter_context(empty_database("spillway", folder)))
        if connection.vendor != "sqlite":
            stack.callback(drop_database, made.other)
        every_table(made.url, "fill", folder)
        yield made


def vendor() -> str:
    if connection.vendor == "mysql":
        return "MariaDB" if connection.mysql_is_mariadb else "MySQL"  # type: ignore[attr-defined]
    return connection.display_name


def where(program: str) -> list[str]:
    """How it is started; empty if it is not here. Debian's mysqldump is MariaDB's under another name."""
    if vendor() == "MySQL" and CLIENTS.exists():
        return loaded(CLIENTS, f"usr/bin/{program}")
    found = shutil.which(program)
    if not found or (vendor() == "MySQL" and "MariaDB" in stdout_of([found, "--version"])):
        return []
    return [found]


def stdout_of(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def shown() -> tuple[list[str], list[str]]:
    """The commands of the backup and of the restore of this database."""
    rows = {name: (backup, restore) for name, backup, restore in ROWS.findall(read(ROOT / "docs" / "backup.md"))}
    assert rows.keys() == PROGRAMS.keys()
    backup, restore = rows[vendor()]
    return re.findall(r"`(.+?)`", backup), re.findall(r"`(.+?)`", restore)


def every_table(url: str, verb: str, folder: Path) -> str:
    done = run_with(url, "-m", "tests.docs.every_table", verb, str(folder / "rows.json"))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def all_is_there(url: str, folder: Path) -> None:
    assert "Everything adds up." in every_table(url, "restored", folder)


@pytest.mark.skipif(connection.vendor != "mysql", reason="only MariaDB has sequences that a backup names")
def test_older_backups_and_other_names_are_restored_on_mariadb_as_the_page_says(place):
    if vendor() != "MariaDB":
        pytest.skip("MySQL has no sequences")
    (_, unlock), (_, rename) = NOTES.findall(read(ROOT / "docs" / "backup.md"))
    (backup,), _ = shown()
    assert place.run(backup.replace("--skip-add-locks ", "")).returncode == 0
    place.begin_other()
    assert "ERROR 1100" in place.run("mariadb spillway < spillway.sql", place.other).stderr
    place.begin_other()
    done = place.run(unlock.replace("mariadb spillway", f"mariadb {place.other}"))
    assert done.returncode == 0, done.stderr[-1000:]
    assert "spillway.E022" in run_with(url_of(place.other), "manage.py", "check", "--database", "default").stderr
    place.begin_other()
    assert place.run(backup).returncode == 0
    done = place.run(rename.replace("other", place.other))
    assert done.returncode == 0, done.stderr[-1000:]
    all_is_there(url_of(place.other), place.folder)


def test_a_backup_by_the_page_is_restored_and_everything_adds_up(place):
    backup, restore = shown()
    for command in backup:
        done = place.run(command)
        assert (done.returncode, "ERROR" in done.stderr) == (0, False), done.stderr[-1000:]
    if connection.vendor == "sqlite":
        for end in ("", "-wal", "-shm"):
            (place.folder / f"spillway.sqlite3{end}").unlink(missing_ok=True)
    else:  # gone, so that nothing of it can be used; what is restored has its name, as on the page
        drop_database(place.name)
    for command in restore:
        done = place.run(command)
        assert (done.returncode, "ERROR" in done.stderr) == (0, False), done.stderr[-1000:]
    all_is_there(place.url, place.folder)
