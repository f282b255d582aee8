"""The client's app inside the suite's process, and a foreign project as child processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin import site
from django.db import connection, transaction

from tests.databases import empty_database
from tests.tree import ROOT

HERE = Path(__file__).parent


@pytest.fixture
def promises(transactional_db: None, settings: Any) -> Iterator[Any]:
    """The client's table beside those of Spillway, for as long as the test; its manager."""
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "spillway_client"]
    settings.SPILLWAY_CLIENT = {"BOOTSTRAP_SERVERS": "127.0.0.1:1", "PRODUCER": "billing"}
    from spillway_client.models import Promise

    with connection.schema_editor() as editor:
        editor.create_model(Promise)
    try:
        yield Promise.objects
    finally:
        # Whoever imports its page registers it at the site, which goes on without the app.
        site._registry.pop(Promise, None)
        with connection.schema_editor() as editor:
            editor.delete_model(Promise)


def promise(number: int, aggregate: str = "", **more: Any) -> int:
    """Publish a mail in a transaction of its own."""
    from spillway_client import publish

    mail = {"to": "ada@example.com", "subject": f"Invoice {number}", "text": "It is ready.\n"}
    with transaction.atomic():
        return publish(
            **{
                "event_type": "invoice.issued",
                "aggregate": aggregate or f"invoice:{number}",
                "payload": mail,
                "idempotency_key": f"{number}/issued",
                **more,
            }
        )


@dataclass
class Scripted:
    """A producer whose broker is a list; `script` says what it answers, by the number of a promise."""

    log: list[int] = field(default_factory=list)
    script: dict[int, Any] = field(default_factory=dict)
    waves: list[int] = field(default_factory=list)
    meanwhile: Callable[[], Any] = lambda: None

    def send_all(self, sent: Sequence[Any], until: float) -> list[Any]:
        from spillway_client.producer import SENT, Outcome

        outcomes = [self.script.get(one.pk, Outcome(SENT)) for one in sent]
        self.waves.append(len(sent))
        self.log += [one.pk for one, outcome in zip(sent, outcomes, strict=True) if outcome.state == SENT]
        self.meanwhile()
        return outcomes

    def close(self) -> None: ...


@dataclass
class Foreign:
    """The foreign project in a folder of its own, on a database of its own."""

    folder: Path
    database: str
    client: dict[str, Any] = field(default_factory=dict)

    def manage(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command of it: Python finds its packages and the client's, never those of Spillway."""
        told = {
            "PYTHONPATH": str(ROOT / "client"),
            "BILLING_DATABASE": self.database,
            "CLIENT": json.dumps(self.client),
        }
        env = {**{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}, **told, **environment}
        command = (sys.executable, "manage.py", *command)
        return subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=300)


@pytest.fixture
def foreign(transactional_db: None, tmp_path: Path) -> Iterator[Foreign]:
    folder = shutil.copytree(HERE / "foreign", tmp_path / "billing")
    with empty_database("client", tmp_path) as url:
        found = Foreign(folder, url)
        done = found.manage("migrate", "--verbosity=0")
        assert done.returncode == 0, done.stderr
        yield found
