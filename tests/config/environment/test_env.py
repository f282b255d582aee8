"""Settings: a bad value is one line that names its variable."""

import os
import re
import subprocess
import sys

import pytest

from config.environment.databases import database_from_url, databases
from config.environment.env import BadSetting, Env, variables_of
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
    assert env("a=1, b=x=y").pairs("NAME") == {"a": "1", "b": "x=y"}
    assert env("https://id.test/token/").address("NAME") == "https://id.test/token/"
    assert env("https://ops.test/").site("NAME") == "https://ops.test"
    assert env("").choice("NAME", "", ["red"]) == ""


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
        ("a=1,b", lambda env: env.pairs("NAME")),
        ("a=b\x01c", lambda env: env.pairs("NAME")),
        ("id.test/token", lambda env: env.address("NAME")),
    ],
)
def test_a_bad_value_names_the_variable(env, value, read):
    with pytest.raises(BadSetting, match="^NAME: "):
        read(env(value))


@pytest.mark.parametrize(
    "content",
    [
        b"s3cret",
        b"s3cret\n",
        b"s3cret\r\n",
        b"\xef\xbb\xbfs3cret\n",
        b" s3cret \n\n",
        "s3crét".encode(),
        "\ufeffs3crét".encode(),
    ],
)
def test_a_secret_is_the_text_of_its_file_whatever_an_editor_put_around_it(content, tmp_path, monkeypatch):
    (tmp_path / "secret").write_bytes(content)
    monkeypatch.setenv("NAME_FILE", str(tmp_path / "secret"))
    assert Env().text("NAME") in ("s3cret", "s3crét")


@pytest.mark.parametrize(
    "content", ["hidé".encode("latin-1"), "hid".encode("utf-16"), "hid".encode("utf-16-le"), b"hid\0den"]
)
def test_a_file_that_is_no_text_is_told_in_one_line_and_not_repeated(content, tmp_path, monkeypatch):
    (tmp_path / "secret").write_bytes(content)
    monkeypatch.setenv("NAME_FILE", str(tmp_path / "secret"))
    with pytest.raises(BadSetting, match=r"^NAME_FILE: the file that it names is no text in UTF-8$") as caught:
        Env().text("NAME")
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("path", ["postgres://u:hidden@h/name", "/hidden/absent", "/", "hid" * 2000])
def test_a_secret_in_place_of_its_files_name_is_not_repeated(path, monkeypatch):
    monkeypatch.setenv("NAME_FILE", path)
    with pytest.raises(BadSetting, match="^NAME_FILE: cannot read") as caught:
        Env().text("NAME")
    assert "hid" not in str(caught.value)


# -- .env ----------------------------------------------------------------------------------------------------
@pytest.fixture
def dotenv(tmp_path):
    def with_content(content):
        (tmp_path / ".env").write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path / ".env"

    return with_content


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("NAME=value", "value"),
        ("\ufeffNAME=value", "value"),
        ("NAME = value", "value"),
        ("NAME\t=\tvalue ", "value"),
        ("  NAME=value", "value"),
        ("export NAME=value", "value"),
        ("\ufeffexport   NAME = 'value'", "value"),
        ("NAME=value # told to others", "value"),
        ("NAME=val#ue", "val#ue"),
        ("NAME=#value", "#value"),
        ("NAME= # nothing", ""),
        ("NAME=", ""),
        ("NAME=''", ""),
        ("NAME='a # b' # c", "a # b"),
        ('NAME="a # b"', "a # b"),
        ("NAME='it's'", "it's"),
        (r"NAME='a\b'", r"a\b"),
        (r'NAME="say \"hi\" # \\ here" # c', r'say "hi" # \ here'),
        (r'NAME="a\nb"', r"a\nb"),
        ('NAME={"a": "b=c"}', '{"a": "b=c"}'),
        ("NAME=postgres://u:p%23@h/name?a=b", "postgres://u:p%23@h/name?a=b"),
        ("NAME=first\nNAME=second", "second"),
        ("NAME=blüe\u2028\x85x", "blüe\u2028\x85x"),
    ],
)
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r", ""])
def test_a_line_of_dotenv_is_read_in_each_usual_spelling(line, value, ending, dotenv):
    lines = f"# first{ending}{line}" if ending and "\ufeff" not in line else line
    assert dict(variables_of(dotenv(f"{lines}{ending}"))) == {"NAME": value}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("URL: postgres://u:hidden@h/name", "URL: line 2 of .env is not NAME=value"),
        ("URL postgres://u:hidden@h/name", "line 2 of .env is not NAME=value"),
        ("postgres://u:hidden@h/name", "line 2 of .env is not NAME=value"),
        ("hidden", "line 2 of .env is not NAME=value"),
        ("set URL=hidden", "line 2 of .env is not NAME=value"),
        ("URL-2=hidden", "line 2 of .env is not NAME=value"),
        ("\ufeffURL=hidden", "line 2 of .env is not NAME=value"),
        ("URL\u00a0=hidden", "line 2 of .env is not NAME=value"),
        ("URL='hidden", "URL: line 2 of .env opens a quotation mark and does not close it at its end"),
        ('URL = "hid" den', "URL: line 2 of .env opens a quotation mark and does not close it at its end"),
        (b"URL=hid\xe4den", "URL: line 2 of .env is no text in UTF-8"),
        (b"export URL = hid\0den", "URL: line 2 of .env is no text in UTF-8"),
    ],
)
def test_a_line_that_cannot_be_read_names_the_variable_or_the_line_and_never_the_value(line, said, dotenv):
    content = b"OTHER=1\n" + (line if isinstance(line, bytes) else line.encode()) + b"\nMORE=2\n"
    with pytest.raises(BadSetting) as caught:
        Env(dotenv(content))
    assert str(caught.value) == said
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert "MORE" not in os.environ


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_dotenv_of_another_encoding_is_refused(encoding, dotenv):
    with pytest.raises(BadSetting, match=r"^line 1 of .env is no text in UTF-8$"):
        Env(dotenv("URL=hidden\n".encode(encoding)))


def test_a_dotenv_that_is_there_and_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "folder" / ".env").mkdir(parents=True)
    (tmp_path / ".env").symlink_to(tmp_path / "absent")
    for folder in (tmp_path / "folder", tmp_path):
        with pytest.raises(BadSetting, match=r"^.env: cannot be read: "):
            Env(folder / ".env")
    Env(tmp_path / "absent" / ".env")


def test_the_environment_goes_before_dotenv(monkeypatch, dotenv):
    monkeypatch.setenv("SPILLWAY_HERE", "mine")
    monkeypatch.setenv("SPILLWAY_THERE", "")
    monkeypatch.delenv("SPILLWAY_THERE")
    read = Env(dotenv("\ufeffSPILLWAY_THERE = 'theirs'\r\nSPILLWAY_HERE = theirs\r\n"))
    assert (read.text("SPILLWAY_HERE"), read.text("SPILLWAY_THERE")) == ("mine", "theirs")


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
