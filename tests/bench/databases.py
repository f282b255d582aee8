"""A database of the bench's own on a server of the tests, and what can be asked of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

from django.db import connection

from tests.crash.databases import drop


@contextmanager
def fresh_database(url: str, name: str) -> Iterator[str]:
    """The address of a new, empty database beside the one that `url` names; dropped at the end."""
    with closing(connect(url)) as server, closing(server.cursor()) as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {name}")
        cursor.execute(f"CREATE DATABASE {name}" + ("" if is_postgres(url) else " CHARACTER SET utf8mb4"))
    try:
        yield urlsplit(url)._replace(path=f"/{name}").geturl()
    finally:
        drop(url, f"DROP DATABASE IF EXISTS {name}" + (" WITH (FORCE)" if is_postgres(url) else ""))


def is_postgres(url: str) -> bool:
    return url.startswith("postgres")


def connect(url: str) -> Any:
    if is_postgres(url):
        import psycopg

        return psycopg.connect(url, autocommit=True)
    import MySQLdb

    where = urlsplit(url)
    return MySQLdb.connect(
        host=where.hostname, port=where.port, user=where.username, password=where.password, database=where.path[1:]
    )


def server() -> str:
    """What this process is connected to, for people: PostgreSQL 15.18."""
    ((version,),) = rows("SELECT version()")
    number = re.search(r"\d+(\.\d+)+", version)
    kind = next((name for name in ("PostgreSQL", "MariaDB") if name in version), "MySQL")
    return f"{kind} {number[0] if number else ''}"


@contextmanager
def roomy() -> Iterator[str]:
    """A buffer pool that holds ten million rows of the ledger, as one sized by its manual would; says how large.

    PostgreSQL needs none: what its own buffers do not hold comes from the operating system's memory, which
    MariaDB and MySQL go past.
    """
    if connection.vendor != "mysql":
        yield "the operating system's"
        return
    ((usual,),) = rows("SELECT @@GLOBAL.innodb_buffer_pool_size")
    wanted = min(4 << 30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4)
    execute("SET GLOBAL innodb_buffer_pool_size = %s", [max(usual, wanted)])
    try:
        yield f"{max(usual, wanted) >> 20} MB"
    finally:
        execute("SET GLOBAL innodb_buffer_pool_size = %s", [usual])


@contextmanager
def row_counters() -> Iterator[None]:
    """The server counts rows by table; MariaDB does so only when told."""
    told = connection.vendor == "mysql" and connection.mysql_is_mariadb
    if told:
        ((usual,),) = rows("SELECT @@GLOBAL.userstat")
        execute("SET GLOBAL userstat = ON")
    try:
        yield
    finally:
        if told:
            execute("SET GLOBAL userstat = %s", [usual])


def rows(sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


def execute(sql: str, params: Sequence[Any] = ()) -> int:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return int(cursor.rowcount)


def empty() -> None:
    """Every table of ours as new: no dead rows, no bloated index."""
    tables = [
        "buffer_bufferedevent", "buffer_bucket", "buffer_batch", "outbox_watermark", "outbox_flowcounter",
        "outbox_flowminute",
    ]  # fmt: skip
    for table in tables:
        execute(f"TRUNCATE TABLE {table}")
