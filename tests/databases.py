"""Databases beside that of the tests: on the same server, empty, made as somebody else would make them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.db import connection

from tests.prepared import run_python

UTF8 = {"postgresql": "ENCODING 'UTF8' TEMPLATE template0", "mysql": "CHARACTER SET utf8mb4"}


@contextmanager
def empty_database(mark: str, folder: Path, how: str = "") -> Iterator[str]:
    """Yields its URL; `how` is what CREATE DATABASE says of it. A file in `folder` with SQLite."""
    if connection.vendor == "sqlite":
        yield f"sqlite:///{folder / f'{mark}.sqlite3'}"
        return
    name = f"spillway_{mark}_{hashlib.sha256(connection.settings_dict['NAME'].encode()).hexdigest()[:8]}"
    drop_database(name)
    execute(f"CREATE DATABASE {name} {how or UTF8[connection.vendor]}")
    try:
        yield url_of(name)
    finally:
        drop_database(name)


def drop_database(name: str) -> None:
    execute(f"DROP DATABASE IF EXISTS {name}{' WITH (FORCE)' if connection.vendor == 'postgresql' else ''}")


def execute(*statements: str) -> None:
    """As the account of the tests, in no database."""
    with connection._nodb_cursor() as cursor:  # type: ignore[attr-defined]
        for statement in statements:
            cursor.execute(statement)


def url_of(name: str) -> str:
    said = connection.settings_dict
    scheme = "postgres" if connection.vendor == "postgresql" else "mysql"
    return f"{scheme}://{said['USER']}:{quote(said['PASSWORD'])}@{said['HOST']}:{said['PORT']}/{name}"


def run_with(url: str, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments and that database."""
    told = {"DJANGO_SETTINGS_MODULE": "config.settings", "LOG_LEVEL": "ERROR", "EMAIL_CHANNEL": "memory"}
    env = {**os.environ, **told, "DATABASE_URL": url, **environment}
    return run_python(*command, env=env)


def json_of(done: subprocess.CompletedProcess[str]) -> Any:
    """What it printed last."""
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
