"""A receiver, subscriptions to it, and needs that a test decides about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from config.database.clock import database_now
from config.flows import Need
from outbox.notices import incidents
from outbox.notices.addresses import seal
from outbox.notices.models import KINDS, Subscription
from tests.outbox.notices.receiver import Receiver, receiving


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    settings.NOTIFY_ALLOWED_HOSTS = ["127.0.0.1"]
    settings.NOTIFY_TIMEOUT_SECONDS = 3.0
    settings.SITE_URL = "https://ops.example.com"
    with receiving() as server:
        yield server


@pytest.fixture
def subscribe() -> Callable[..., Subscription]:
    def make(address: str = "json://198.51.100.7/", name: str = "Ops", **more: Any) -> Subscription:
        given = {"kinds": list(KINDS), "urgency": "watch", "shown": "somewhere", "created_at": database_now()}
        return Subscription.objects.create(name=name, address=seal(address), **given | more)

    return make


@pytest.fixture
def needed(monkeypatch: pytest.MonkeyPatch) -> list[Need]:
    """What home shows: the test puts it in and takes it out."""
    needs: list[Need] = []
    monkeypatch.setattr(incidents, "needs_one_by_one", lambda now: list(needs))
    return needs


@pytest.fixture
def due(subscribe: Callable[..., Subscription], needed: list[Need]) -> Callable[..., Subscription]:
    """A subscription with one notice that is due of each of these needs."""

    def make(address: str = "json://198.51.100.7/", needs: Sequence[Need] = (), **more: Any) -> Subscription:
        row = subscribe(address, **more)
        needed.extend(needs or [a_need()])
        incidents.look(database_now())
        return row

    return make


def a_need(kind: str = "worker", key: str = "7", urgency: Any = "now", title: str = "", **more: Any) -> Need:
    words = title or f"Dead: {kind} {key}"
    return Need(urgency, words, "Its process is gone.", f"/admin/about/{key}/", "Show", kind=kind, key=key, **more)
