"""Every process of Spillway at work in a drill without Prometheus, and whether all adds up in the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.crash.platform import Platform

if TYPE_CHECKING:
    from tests.processes.everybody import Everybody

Say = Callable[[str], None]
KEPT = {"THROTTLER_BUFFER_DAYS": "7", "BUFFER_RETENTION_MONTHS": "3"}


def set_up(url: str, servers: str) -> None:
    """Django in this process, which looks at what the others do; it goes through the proxy, too."""
    os.environ |= {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "config.settings", "SECRET_KEY": "not-a-secret" * 5,
                   "KAFKA_BOOTSTRAP_SERVERS": servers, "TEST_KAFKA_SERVERS": servers, **KEPT}  # fmt: skip
    import django

    os.environ["LOG_LEVEL"] = "WARNING"
    django.setup()
    del os.environ["LOG_LEVEL"]  # of this process alone


@contextmanager
def everybody_at_work(logs: Path, url: str, servers: str, say: Say) -> Iterator[Everybody]:
    from django.conf import settings
    from django.db import connections

    from tests.processes.everybody import everybody

    Platform(logs, {}).manage("migrate", "--verbosity", "0")
    say("migrated, through a proxy")
    try:
        with everybody(logs, settings, url, servers) as platform:
            yield platform
    finally:
        connections.close_all()


def adds_up(everybody: Everybody, say: Say) -> bool:
    """The traffic and everybody else end, what is buffered is sent, and `verify` holds."""
    everybody.stop()
    everybody.platform.manage("run_throttler", "--until-idle", "5")
    done = everybody.platform.manage("verify", "--kafka", check=False)
    say(f"$ python manage.py verify --kafka: {(done.stdout.strip() or done.stderr.strip()).splitlines()[-1][:150]}")
    return not done.returncode
