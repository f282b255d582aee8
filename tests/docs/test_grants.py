"""The accounts of deploy/grants, made on a real server: what they need they may, and no more."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from django.apps import apps
from django.db import connection

from tests.prepared import run_python
from tests.tree import ROOT, read

GRANTS = ROOT / "deploy" / "grants"
PASSWORD = "change-this"
WRITTEN_BY_MIGRATE = {"auth_permission", "django_content_type", "django_migrations", "outbox_offeredright"}
Run = Callable[[str], list[tuple]]


@pytest.fixture(scope="module")
def granted(django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    """A database set up as docs/deploy.md says; yields the URL of spillway_app."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no accounts")
    with django_db_blocker.unblock():
        place = Place()
        if not place.makes_accounts():
            pytest.skip("the tests' account may not make others (older servers: make services-down WIPE=1)")
        place.drop()
        try:
            place.make()
            yield place.url("app")
        finally:
            place.drop()


class Place:
    """A database and two accounts of this run alone, made by the files of deploy/grants."""

    def __init__(self) -> None:
        self.told = connection.settings_dict
        self.mark = hashlib.sha256(self.told["NAME"].encode()).hexdigest()[:8]
        self.name = f"spillway_grants_{self.mark}"
        self.dialect = "postgresql" if connection.vendor == "postgresql" else "mysql"

    def makes_accounts(self) -> bool:
        with connection.cursor() as cursor:
            if self.dialect == "postgresql":
                cursor.execute("SELECT rolcreaterole OR rolsuper FROM pg_roles WHERE rolname = current_user")
                return cursor.fetchone()[0]
            cursor.execute("SHOW GRANTS")
            return any("GRANT OPTION" in row[0] for row in cursor.fetchall())

    def make(self) -> None:
        if self.dialect == "postgresql":
            self.execute(f"CREATE DATABASE {self.name}")
        self.apply(f"{self.dialect}.sql")
        run_django(self.url("migrate"), "manage.py", "migrate", "--noinput")
        for _ in range(2):  # again after each upgrade
            self.apply(f"{self.dialect}_after_migrate.sql")

    def drop(self) -> None:
        if self.dialect == "postgresql":
            self.execute(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")
        else:
            self.execute(f"DROP DATABASE IF EXISTS {self.name}")
        for role in ("app", "migrate"):
            host = "" if self.dialect == "postgresql" else "@'%'"
            self.execute(f"DROP {'ROLE' if not host else 'USER'} IF EXISTS {self.account(role)}{host}")

    def account(self, role: str) -> str:
        return f"spillway_{role}_{self.mark}"

    def url(self, role: str) -> str:
        scheme = "postgres" if self.dialect == "postgresql" else "mysql"
        host, port = self.told["HOST"], self.told["PORT"]
        return f"{scheme}://{self.account(role)}:{quote(PASSWORD)}@{host}:{port}/{self.name}"

    def apply(self, name: str) -> None:
        """The file, with names and passwords of this run, as psql or mysql would run it."""
        text = re.sub(r"^(--|\\set).*$", "", read(GRANTS / name), flags=re.MULTILINE)
        text = re.sub(r":'\w+_password'|'change this password[^']*'", f"'{PASSWORD}'", text)
        text = re.sub(r"spillway_(app|migrate)\b", lambda found: self.account(found[1]), text)
        text = re.sub(r"\bspillway(?=\.| CHARACTER)", self.name, text)
        with self.connect(self.name if self.dialect == "postgresql" else None) as raw:
            for statement, generates in re.findall(r"\s*(.+?)\s*(;|\\gexec)", text, re.DOTALL):
                rows = run(raw, statement)
                if statement.startswith("CREATE ROLE"):
                    # A superuser is a member of every role; the tests' account is none.
                    run(raw, f"GRANT {statement.split()[2]} TO CURRENT_USER")
                if generates != ";":
                    for (made,) in rows:
                        run(raw, made)

    def execute(self, statement: str) -> None:
        with self.connect(None) as raw:
            run(raw, statement)

    def connect(self, name: str | None) -> Any:
        """A connection of the tests' account, outside of transactions."""
        host, port, user, password = (self.told[key] for key in ("HOST", "PORT", "USER", "PASSWORD"))
        if self.dialect == "postgresql":
            import psycopg

            database = name or "postgres"
            return psycopg.connect(host=host, port=port, user=user, password=password, dbname=database, autocommit=True)
        import MySQLdb

        return MySQLdb.connect(host=host, port=int(port), user=user, passwd=password, autocommit=True)


def run(raw: Any, statement: str) -> list[tuple]:
    cursor = raw.cursor()
    cursor.execute(statement)
    return list(cursor.fetchall()) if cursor.description else []


def run_django(url: str, *command: str) -> str:
    env = {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "config.settings", "SECURE_SSL_REDIRECT": "0",
           "ALLOWED_HOSTS": "testserver", "EMAIL_CHANNEL": "memory", "LOG_LEVEL": "ERROR"}  # fmt: skip
    done = run_python(*command, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def found(granted: str) -> dict[str, dict[str, Any]]:
    return json.loads(run_django(granted, "-m", "tests.docs.app_role").splitlines()[-1])


@pytest.mark.django_db
def test_the_application_does_its_work(granted, found):
    assert found["allowed"] == {
        "wrong password": 200, "right password": 302, "unlocked": 0, "deleted user": 302, "logged out": True,
        "messages": 1, "lifted": 1, "forgotten": 1, "sealed": True,
    }  # fmt: skip
    run_django(granted, "manage.py", "relay_outbox", "--once")
    run_django(granted, "manage.py", "verify")


@pytest.mark.django_db
def test_the_application_gives_itself_no_right_and_deletes_no_trace(found):
    assert all(found["forbidden"].values()), found["forbidden"]


def test_mysql_is_granted_every_table_but_those_of_migrate():
    text = read(GRANTS / "mysql_after_migrate.sql")
    named = re.findall(r"GRANT INSERT(?:, UPDATE)? ON spillway\.(\w+)", text)
    ours = {model._meta.db_table for model in apps.get_models(include_auto_created=True)}
    assert sorted(named) == sorted(ours - WRITTEN_BY_MIGRATE)
