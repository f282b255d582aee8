"""A channel called memory, a relay that can be asked for one round, and tables as an earlier migration left them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from config.database.clock import database_now
from outbox.channels import handlers as registry
from outbox.channels.admission import ensure
from outbox.delivery.candidates import lower_bound
from outbox.delivery.claim import claim
from outbox.delivery.deliver import deliver
from outbox.models import OutboxMessage
from tests.outbox.scripted import Scripted


@pytest.fixture
def install(monkeypatch, settings):
    """Put handlers into the registry under their names."""

    def put(*found: Scripted) -> Scripted:
        settings.HANDLERS = {one.name: "tests.outbox.scripted.Scripted" for one in found}
        monkeypatch.setattr(registry, "installed", {one.name: one for one in found})
        lower_bound.forget()
        return found[0]

    return put


@pytest.fixture
def memory(install, db) -> Scripted:
    handler = install(Scripted())
    ensure([handler.name])
    return handler


@pytest.fixture
def go():
    """Claim and deliver what is due now, once; returns how many were accepted."""

    def round_(handler, *, most: int = 100, path: str = "poll", stop=None, **more) -> int:
        found = claim(handler, path, most, **more)
        return deliver(found, handler, stop or threading.Event())

    return round_


@pytest.fixture
def later():
    """Let time pass for what is stored: every moment of every message moves back by so many seconds."""

    def shift(seconds: float, **only) -> None:
        by = timedelta(seconds=seconds)
        now = database_now()
        for row in OutboxMessage.objects.filter(**only):
            row.available_at -= by
            row.expires_at -= by
            if row.lease_until:
                row.lease_until -= by
            row.save(update_fields=["available_at", "expires_at", "lease_until"])
        assert now

    return shift


class Tables:
    """The tables of this database, at one migration or another."""

    def as_of(self, name: str) -> Any:
        """Go back to this migration of the outbox; returns the models of then."""
        executor = MigrationExecutor(connection)
        executor.migrate([("outbox", name)])
        return executor.loader.project_state([("outbox", name)]).apps

    def migrate(self) -> None:
        executor = MigrationExecutor(connection)
        executor.migrate(executor.loader.graph.leaf_nodes())


@pytest.fixture
def tables(transactional_db: None) -> Iterator[Tables]:
    """Those of the newest migration again in the end."""
    found = Tables()
    yield found
    found.migrate()
