"""A fresh database per run on each server that is known, and away with it afterwards."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from config.environment.databases import parse_cassandra_url
from tests.services import supervisor
from tests.services.cassandra import Cassandra
from tests.services.kafka import Kafka

DATABASES = ("postgres", "mariadb", "mysql")
PATIENCE = 30  # seconds


def known() -> dict[str, str]:
    """Name → URL: SQLite always, the others when the environment names them or they run here."""
    running = supervisor.addresses()
    variables = {service.name: service.variable for service in supervisor.SERVICES if service.name in DATABASES}
    urls = {name: os.environ.get(variable) or running.get(variable, "") for name, variable in variables.items()}
    return {"sqlite": "sqlite://", **{name: url for name, url in urls.items() if url}}


def named(url: str) -> dict[str, str]:
    """The one database the command line names, under the name by which it is known here."""
    return {name: known_url for name, known_url in known().items() if known_url == url} or {url.partition(":")[0]: url}


def kafka_servers() -> str:
    return os.environ.get(Kafka.variable) or supervisor.addresses(["kafka"]).get(Kafka.variable, "")


def cassandra() -> str:
    """The server's address, or "" where there is none."""
    return os.environ.get(Cassandra.variable) or supervisor.addresses(["cassandra"]).get(Cassandra.variable, "")


@contextmanager
def fresh_keyspace() -> Iterator[dict[str, str]]:
    """The environment of a throttler with a keyspace of its own, dropped at the end; `create_overflow_store` makes it."""
    from throttler.overflow.cassandra import connected

    url = f"{cassandra()}/spillway_crash_{os.getpid()}?replication=1"
    try:
        yield {"THROTTLER_STORE": "cassandra", "CASSANDRA_URL": url}
    finally:
        place = parse_cassandra_url(url)
        session = connected(place)
        session.execute(f"DROP KEYSPACE IF EXISTS {place.keyspace}")
        session.cluster.shutdown()


@contextmanager
def fresh(url: str) -> Iterator[str]:
    """The URL of an empty database on that server; dropped at the end."""
    if url.startswith("sqlite"):
        with tempfile.TemporaryDirectory(prefix="spillway-crash-") as directory:
            yield f"sqlite:///{Path(directory) / 'crash.sqlite3'}"
        return
    where = urlsplit(url)
    name = f"{where.path.strip('/') or 'spillway'}_crash_{os.getpid()}"
    run(url, f"CREATE DATABASE {name}")
    try:
        yield where._replace(path=f"/{name}").geturl()
    finally:
        drop(url, f"DROP DATABASE {name}{' WITH (FORCE)' if where.scheme.startswith('postgres') else ''}")


def drop(url: str, statement: str) -> None:
    """PostgreSQL's own vacuum may be at work in it, which only a superuser may end: then again a little later."""
    for left in reversed(range(PATIENCE)):
        try:
            return run(url, statement)
        except Exception:
            if not left:
                raise
            time.sleep(1)


def run(url: str, statement: str) -> None:
    with closing(connect(url)) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(statement)


def rows(url: str, statement: str) -> list[tuple[Any, ...]]:
    """What a query returns."""
    with closing(connect(url)) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(statement)
        return [tuple(row) for row in cursor.fetchall()]


def connect(url: str) -> Any:
    """A connection without Django, every statement committed by itself."""
    where = urlsplit(url)
    if where.scheme == "sqlite":
        import sqlite3

        return sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60, isolation_level=None)
    if where.scheme.startswith("postgres"):
        import psycopg

        return psycopg.connect(url.replace("postgres://", "postgresql://", 1), autocommit=True)
    import MySQLdb

    connection = MySQLdb.connect(
        host=where.hostname, port=where.port or 3306, user=where.username, password=unquote(where.password or ""),
        database=where.path.strip("/"), charset="utf8mb4",
    )  # fmt: skip
    connection.autocommit(True)
    return connection
