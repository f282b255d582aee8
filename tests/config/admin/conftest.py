"""People at the console, and rows of every kind for them to look at."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from buffer.events import levers
from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.flush.flusher import Flusher
from config.admin.levers import Operator
from config.database.clock import database_now
from config.kafka import Refused
from config.partitions import rotation
from outbox.audit_log.models import OperatorAction
from outbox.bookkeeping.models import Watermark
from outbox.groups.models import FailureGroup
from outbox.letters.models import DeadLetter
from tests.conftest import order

VIEWS = [
    "batch", "bucket", "bufferedevent", "deadletter", "failuregroup", "watermark", "operatoraction",
    "outboxmessage", "channelstate",
]  # fmt: skip


INLINE = re.compile(rb"<style|\sstyle=|<script(?![^>]*\ssrc=)|\son\w+=|javascript:")


@pytest.fixture(autouse=True)
def _plain_http(settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = False


@pytest.fixture(autouse=True)
def _long_runway(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions are somebody else's test; asked at odd times, the catalogue would disturb counting."""
    monkeypatch.setattr(rotation, "days_by_table", lambda now: {"buffer_bufferedevent": 120.0})


@pytest.fixture
def boss(db: None) -> Client:
    """May do everything."""
    client = Client()
    client.force_login(User.objects.create_superuser("boss", first_name="M.", last_name="Okafor"))
    return client


@pytest.fixture
def reader(db: None) -> Client:
    """May look at everything and change nothing."""
    return client_with(*[f"view_{name}" for name in VIEWS])


def client_with(*codenames: str) -> Client:
    user = User.objects.create_user(f"user{User.objects.count()}", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


def reveal(client: Client, *found: Any) -> None:
    """Have the hidden values of these rows shown to this client."""
    for row in found:
        url = reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_reveal", args=[row.pk])
        assert client.post(url, {"reason": "The customer called"}).status_code == 302


@pytest.fixture
def rows(ingest: Any, records: Any, stream: Any, producer: Any) -> SimpleNamespace:
    """A sent batch, a refused one, waiting orders, a late event, an undecodable record, a lever pulled."""
    ingest(records(order("A1"), order("A2")))
    flush(stream, producer)
    ingest(records(order("A1", items={"S1": 7}), b"\xff not json"))
    ingest(records(order("B1", "WH-2")))
    producer.outcomes = [Refused("MessageSizeTooLargeError")]
    flush(stream, producer)
    ingest(records(order("C1"), order("C2"), order("C3")))
    now = database_now()
    mark = Watermark.objects.get(group="buffer-ingest", topic="transfer-requests", partition=0)
    Watermark.objects.filter(pk=mark.pk).update(next_offset=7, end_offset=7, caught_up_at=now, updated_at=now)
    return SimpleNamespace(
        sent=Batch.objects.get(status="sent"),
        parked=Batch.objects.get(status="parked"),
        bucket=Bucket.objects.get(location_id="WH-1"),
        waiting=BufferedEvent.objects.get(order_id="C1"),
        done=BufferedEvent.objects.get(order_id="A1"),
        late=DeadLetter.objects.get(step="late"),
        undecodable=DeadLetter.objects.get(step="decode"),
        refused=DeadLetter.objects.get(step="publish"),
        group=FailureGroup.objects.get(step="decode"),
        mark=mark,
        action=OperatorAction.objects.order_by("pk").first(),
    )


def flush(stream: Any, producer: Any) -> None:
    levers.flush_now(list(Bucket.objects.values_list("pk", flat=True)), Operator("test"), "test")
    Flusher([stream], producer).tick()


def seen(client: Client, url: str, status: int = 200) -> str:
    """A page that obeys the policy: nothing inline."""
    response = client.get(url)
    assert response.status_code == status, url
    assert not INLINE.search(response.content), url
    assert "script-src 'self'" in response["Content-Security-Policy"]
    return response.content.decode()


def queries_of(client: Client, url: str) -> list[str]:
    """What a page asks the database for."""
    with CaptureQueriesContext(connection) as captured:
        assert client.get(url).status_code == 200, url
    return [query["sql"] for query in captured]


def walk(client: Client, url: str, word: str, row: str) -> tuple[list[list[str]], str]:
    """Follow "next" or "prev" from `url` to the end; what `row` finds on each page, and the last address."""
    pages, place = [], url.partition("?")[0]
    while url:
        html = seen(client, url)
        pages.append(re.findall(row, html))
        found = re.search(rf'rel="{word}" href="([^"]+)"', html)
        last, url = url, place + found[1].replace("&amp;", "&") if found else ""
    return pages, last


def page_of(row: Any) -> str:
    meta = row._meta
    return f"/admin/{meta.app_label}/{meta.model_name}/{row.pk}/change/"


def list_of(model: Any) -> str:
    return f"/admin/{model._meta.app_label}/{model._meta.model_name}/"


def lever_of(model: Any, name: str, *rows: Any) -> str:
    return f"{list_of(model)}lever/{name}/?" + "&".join(f"id={row.pk}" for row in rows)
