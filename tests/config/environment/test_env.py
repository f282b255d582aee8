"""Settings: a bad value is one line that names its variable."""

import re
import subprocess
import sys

import pytest

from config.environment.databases import database_from_url, databases
from config.environment.env import BadSetting, Env
from config.environment.mail import server_from_url


@pytest.fixture
def env(monkeypatch):
    def with_value(value):
        monkeypatch.setenv("NAME", value)
        return Env()

    return with_value


def test_values_are_read(env):
    assert env("yes").flag("NAME", False) is True
    assert env("off").flag("NAME", True) is False
    assert env("").flag("NAME", True) is True
    assert env("12").integer("NAME", 0) == 12
    assert env("0.5").seconds("NAME", 1) == 0.5
    assert env("a, b").listing("NAME") == ["a", "b"]
    assert env("2.3").version("NAME") == (2, 3)
    assert env("").version("NAME") is None


def test_empty_is_the_default_also_in_a_file(env, monkeypatch, tmp_path):
    assert env("").text("NAME", "blue") == "blue"
    monkeypatch.delenv("NAME")
    (tmp_path / "name").write_text("\n")
    monkeypatch.setenv("NAME_FILE", str(tmp_path / "name"))
    assert Env().text("NAME", "blue") == "blue"
    (tmp_path / "name").write_text("green\n")
    assert Env().text("NAME", "blue") == "green"


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("maybe", lambda env: env.flag("NAME", True)),
        ("ten", lambda env: env.integer("NAME", 1)),
        ("-1", lambda env: env.integer("NAME", 1)),
        ("nan", lambda env: env.seconds("NAME", 1)),
        ("blue", lambda env: env.choice("NAME", "red", ["red"])),
        ("two", lambda env: env.version("NAME")),
    ],
)
def test_a_bad_value_names_the_variable(env, value, read):
    with pytest.raises(BadSetting, match="^NAME: "):
        read(env(value))


def test_a_secret_comes_from_a_file(tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("s3cret\n")
    monkeypatch.setenv("NAME_FILE", str(tmp_path / "secret"))
    assert Env().text("NAME") == "s3cret"
    monkeypatch.setenv("NAME_FILE", str(tmp_path / "absent"))
    with pytest.raises(BadSetting, match="^NAME_FILE: cannot read"):
        Env().text("NAME")


def test_database_urls(tmp_path):
    config = database_from_url("postgres://u:p%40ss@db.example:5433/name", tmp_path)
    assert (config["HOST"], config["PORT"], config["NAME"], config["PASSWORD"]) == ("db.example", 5433, "name", "p@ss")
    assert "mysql" in database_from_url("mariadb://u:p@h/name", tmp_path)["ENGINE"]
    assert database_from_url("", tmp_path)["OPTIONS"]["transaction_mode"] == "IMMEDIATE"


def test_a_session_is_kept_as_long_as_the_url_says(tmp_path):
    ages = [
        database_from_url(f"postgres://u:p@h/name{ending}", tmp_path)["CONN_MAX_AGE"]
        for ending in ("", "?conn_max_age=0")
    ]
    assert ages == [600, 0]


@pytest.mark.parametrize(
    ("text", "pooled"),
    [("True", True), ("on", True), ("1", True), ("false", False), ("No", False), ("off", False), ("0", False)],
)
def test_a_pooler_is_named_in_any_spelling_of_yes_and_no(tmp_path, text, pooled):
    url = f"postgres://u:p@h/name?disable_server_side_cursors={text}"
    assert database_from_url(url, tmp_path)["DISABLE_SERVER_SIDE_CURSORS"] is pooled
    with pytest.raises(BadSetting, match="DATABASE_URL: disable_server_side_cursors: 'x' is neither true nor false"):
        database_from_url("postgres://u:p@h/name?disable_server_side_cursors=x", tmp_path)


def test_the_limit_of_idle_transactions_is_among_the_options(tmp_path):
    options = database_from_url("postgres://u:p@h/name", tmp_path, 7)["OPTIONS"]
    assert "idle_in_transaction_session_timeout=7s" in options["options"]
    assert database_from_url("mariadb://u:p@h/name", tmp_path, 7)["OPTIONS"]["idle_transaction_seconds"] == 7


@pytest.mark.parametrize("url", ["oracle://x/y", "nonsense", "postgres://u:p@h/"])
def test_a_bad_database_url_is_refused(url, tmp_path):
    with pytest.raises(BadSetting, match="^DATABASE_URL: "):
        database_from_url(url, tmp_path)


@pytest.mark.parametrize("password", ["hid/den", "hid?den", "hid#den", "12/hidden", "12?hidden", "hid[den", "hid]den"])
@pytest.mark.parametrize("name", ["DATABASE_URL", "EMAIL_URL"])
def test_a_password_that_breaks_its_url_is_told_in_one_line_and_not_repeated(name, password, tmp_path):
    with pytest.raises(BadSetting) as caught:
        if name == "EMAIL_URL":
            server_from_url(f"smtp://user:{password}@host:587/?tls")
        else:
            database_from_url(f"postgres://user:{password}@host:5432/name", tmp_path)
    assert str(caught.value).startswith(f"{name}: it cannot be read")
    assert "hid" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BUFFER_IDLE_SECONDS", "soon"),
        ("DATABASE_URL", "oracle://x"),
        ("LOG_FORMAT", "xml"),
        ("DATABASE_URL", "postgres://u:hid/den@h/n"),
        ("EMAIL_URL", "smtp://u:hid?den@h"),
        ("CELERY_BROKER_URL", "amqp://u:hid/den@h//"),
        ("CASSANDRA_URL", "cassandra://u:hid/den@h/spill"),
        ("CASSANDRA_URL", ""),
    ],
)
@pytest.mark.processes
def test_start_up_stops_with_one_line(name, value):
    import os

    done = subprocess.run(
        [sys.executable, "manage.py", "check"],
        env={**os.environ, "THROTTLER_STORE": "cassandra", "CASSANDRA_URL": "cassandra://a/spill", name: value},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert name in done.stderr
    assert "hid" not in done.stderr


@pytest.mark.parametrize(
    ("url", "replica", "words"),
    [
        ("postgres://u:p@h/d", "mysql://u:p@h/d", "is another kind of database"),
        ("sqlite:///a.sqlite3", "sqlite:///b.sqlite3", "SQLite has no replicas"),
        ("postgres://u:p@h/d", "postgres://u:p@h", "names no database"),
        ("postgres://u:p@h/d", "oracle://u:p@h/d", "'oracle' is not one of"),
    ],
)
def test_a_replica_is_another_server_of_the_same_kind(tmp_path, url, replica, words):
    with pytest.raises(BadSetting, match=f"^REPLICA_URL: {words}"):
        databases(url, replica, tmp_path)


def test_a_replica_is_waited_for_briefly(tmp_path):
    assert databases("mysql://u:p@h/d", "", tmp_path).keys() == {"default"}
    both = databases("mysql://u:p@h/d", "mariadb://u:p@other/d", tmp_path)
    assert [both[name]["OPTIONS"]["connect_timeout"] for name in ("default", "replica")] == [10, 2]
    for scheme in ("postgres", "mysql"):
        both = databases(f"{scheme}://u:p@h/d", f"{scheme}://u:p@other/d", tmp_path)
        assert [both[name]["OPTIONS"].get("read_timeout") for name in ("default", "replica")] == [None, 6]
        limits = [re.findall("statement_time\\w* ?= ?5", str(both[name]["OPTIONS"])) for name in ("default", "replica")]
        assert list(map(len, limits)) == [0, 1]
