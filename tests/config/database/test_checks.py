"""Databases that would break values are refused before `migrate` applies anything; those that only begin otherwise are not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from subprocess import CompletedProcess
from typing import Any

import pytest
from django.db import connection

from config.database import checks
from tests.databases import empty_database, execute, run_with, url_of

POSTGRES = pytest.mark.skipif(connection.vendor != "postgresql", reason="of PostgreSQL")
MYSQL = pytest.mark.skipif(connection.vendor != "mysql", reason="of MySQL and MariaDB")
NARROW = [
    *(pytest.param(f"ENCODING '{name}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'", name, marks=POSTGRES)
      for name in ("LATIN1", "SQL_ASCII", "EUC_JP")),
    *(pytest.param(f"CHARACTER SET {name}", name, marks=MYSQL) for name in ("latin1", "utf8mb3")),
]  # fmt: skip
# As somebody sets them for all that is in the database, or for a role.
OTHERWISE = {
    "DateStyle": "'SQL, DMY'",
    "IntervalStyle": "sql_standard",
    "TimeZone": "'Asia/Kolkata'",
    "bytea_output": "escape",
    "standard_conforming_strings": "off",
    "extra_float_digits": "-5",
    "client_encoding": "LATIN1",
    "default_transaction_isolation": "serializable",
}
Make = Callable[[str], str]


@pytest.fixture
def make(django_db_setup: None, django_db_blocker: Any, tmp_path: Any) -> Iterator[Make]:
    """An empty database, made with these words; its URL."""
    with django_db_blocker.unblock(), ExitStack() as stack:
        yield lambda how: stack.enter_context(empty_database("other", tmp_path, how))


def manage(url: str, *command: str) -> CompletedProcess[str]:
    return run_with(url, "manage.py", *command)


def errors(done: CompletedProcess[str]) -> list[str]:
    """What the checks say, without what Django warns of."""
    return re.findall(r"\(spillway\.([EW]\d+)\)", done.stderr)


@pytest.mark.parametrize(("how", "encoding"), NARROW)
def test_a_database_that_cannot_hold_every_character_is_refused_before_anything_is_made(make, how, encoding):
    url = make(how)
    for command in (("migrate",), ("check", "--database", "default")):
        done = manage(url, *command)
        assert (done.returncode, errors(done)) == (1, ["E017"])
        (line,) = [line for line in done.stderr.splitlines() if "E017" in line]
        assert encoding in line
        assert {"postgresql": "CREATE DATABASE", "mysql": "ALTER DATABASE"}[connection.vendor] in line
    assert "\n[ ] 0001_schema" in manage(url, "showmigrations", "outbox").stdout.replace(" [", "["), "nothing was made"
    findings = json.loads(manage(url, "doctor", "--json").stdout)["findings"]
    (session,) = [found for found in findings if found["name"] == "database session"]
    assert not session["ok"]
    assert encoding in session["detail"]


@MYSQL
def test_tables_that_were_made_narrow_are_named_with_the_statement_that_mends_them(make):
    """After it identifiers compare bytes as before; CONVERT TO would have taken that away."""
    url = make("CHARACTER SET latin1")
    assert manage(url, "migrate", "--skip-checks").returncode == 0  # as an older version did
    named = manage(url, "check", "--database", "default")
    assert set(errors(named)) == {"E017", "E019"}
    found = [line for line in named.stderr.splitlines() if "spillway.E0" in line]
    assert any("outbox_deadletter holds text in latin1" in line for line in found)
    statements = [re.sub(r"^.*?: (?=ALTER|SET)|\.$", "", line) for line in found]
    name = url.rpartition("/")[2]
    execute(f"USE {name}", *(one for said in statements for one in said.split("; ")))
    assert errors(manage(url, "check", "--database", "default")) == []


@MYSQL
@pytest.mark.django_db
def test_numbers_from_another_database_are_named_with_the_statement_that_mends_them(make):
    """As after a backup of MariaDB was restored under another name, here one that differs by what LIKE takes for any letter."""
    name = make("").rpartition("/")[2]
    if not connection.mysql_is_mariadb:  # type: ignore[attr-defined]
        pytest.skip("MySQL has no sequences")
    old = name.replace("_", "x")
    table = "(id bigint NOT NULL DEFAULT (NEXT VALUE FOR {}) PRIMARY KEY)"
    execute(f"DROP DATABASE IF EXISTS {old}", f"CREATE DATABASE {old}", f"CREATE SEQUENCE {old}.thing_ids")
    try:
        execute(f"USE {name}", "CREATE SEQUENCE thing_ids", f"CREATE TABLE things {table.format('thing_ids')}",
                f"CREATE TABLE others {table.format(f'{old}.thing_ids')}")  # fmt: skip
        named = manage(url_of(name), "check", "--database", "default")
        assert errors(named) == ["E022"]
        statement = re.search(r"others\.id takes its numbers .*: (ALTER TABLE .*)\.\n", named.stderr)[1]
        execute(f"USE {name}", statement, "INSERT INTO others VALUES ()")
        assert errors(manage(url_of(name), "check", "--database", "default")) == []
    finally:
        execute(f"DROP DATABASE {old}")


@POSTGRES
def test_a_database_whose_settings_are_otherwise_is_used_with_ours(make):
    url = make("")
    name = url.rpartition("/")[2]
    execute(*(f"ALTER DATABASE {name} SET {setting} = {value}" for setting, value in OTHERWISE.items()))
    done = manage(url, "migrate", "--verbosity", "0")
    assert (done.returncode, done.stderr) == (0, "")
    assert manage(url, "verify").returncode == 0
    assert manage(url, "check", "--database", "default", "--fail-level", "WARNING").returncode == 0


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        *(pytest.param(f"SET {name} = {OTHERWISE[name]}", name, marks=POSTGRES)
          for name in ("DateStyle", "IntervalStyle", "bytea_output", "standard_conforming_strings")),
        pytest.param("SET client_encoding = LATIN1", "client_encoding", marks=POSTGRES),
        *(pytest.param(f"SET sql_mode = '{mode}'", word, marks=MYSQL) for mode, word in (
            ("", "without STRICT"), ("ANSI_QUOTES,STRICT_ALL_TABLES", "ANSI_QUOTES"),
            ("NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES", "NO_BACKSLASH_ESCAPES"))),
        *(pytest.param(f"SET {name} = latin1", name, marks=MYSQL)
          for name in ("character_set_client", "character_set_connection", "character_set_results")),
        pytest.param("SET NAMES utf8mb3", "character_set_client is utf8", marks=MYSQL),
    ],
)  # fmt: skip
def test_a_session_that_reads_other_values_than_were_written_is_named(statement, expected):
    def said() -> list[str]:
        looks = (checks.text_is_whole, checks.values_are_read_as_written)
        return [str(message.msg) for look in looks for message in look(None, databases=["default"])]

    assert said() == []
    with connection.cursor() as cursor:
        cursor.execute(statement)
    try:
        (line,) = said()
        assert expected in line
    finally:
        connection.close()


@POSTGRES
@pytest.mark.parametrize(
    ("language", "ids"), [("C", []), ("en_GB.UTF-8", []), ("", []), ("de_DE.UTF-8", ["spillway.W017"])]
)
def test_errors_in_another_language_are_warned_of(monkeypatch, language, ids):
    """Only the server may set it, so its answer is made up."""
    settings = [*checks.NEEDED.items(), ("lc_messages", language)]

    class Cursor:
        def execute(self, *_: Any) -> None: ...
        def fetchall(self) -> list[Any]:
            return settings

        def fetchone(self) -> Any:
            return ("me",)

        def __enter__(self) -> Cursor:
            return self

        def __exit__(self, *_: Any) -> None: ...

    session = type("Session", (), {"vendor": "postgresql", "cursor": lambda self: Cursor()})()
    assert [message.id for message in checks._agreement(session)] == ids
