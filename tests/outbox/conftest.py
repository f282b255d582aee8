"""A channel called memory, a relay that can be asked for one round, and tables as an earlier migration left them."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest

from config.database.clock import database_now
from outbox.channels import handlers as registry
from outbox.channels.permits import ensure
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


class HostClock:
    """The clock that ids are made of, as on another host."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch, self._here = monkeypatch, time.time_ns

    def ahead(self, *, seconds: float) -> None:
        """A process of a host whose clock is so much ahead: it knows nothing of ids that others have made."""
        self._patch.setattr("config.fields.time.time_ns", lambda: self._here() + int(seconds * 1e9))
        self._patch.setattr("config.fields._last", 0)


@pytest.fixture
def clock(monkeypatch) -> HostClock:
    return HostClock(monkeypatch)


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
