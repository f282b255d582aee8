"""All sample rows, and what the other pages show: customers over their rate, news of mails, tokens, accounts, replays of topics."""

from __future__ import annotations

import json
from datetime import time, timedelta
from uuid import UUID, uuid4

from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.contrib.auth.models import Group, User

from config.admin.levers import Operator
from config.database.clock import database_now
from notifications.api.tokens import issue
from notifications.mail import suppression
from notifications.webhooks import inbox
from notifications.webhooks.providers import Event
from outbox.models import Incident, Notice, OutboxMessage, SavedView, Subscription, WorkerProcess
from outbox.notices.models import KINDS
from outbox.topic_replay import requests
from outbox.topic_replay.models import TopicReplay
from tests.screenshots.flows import fill_flows
from tests.screenshots.letters import fill_letters
from tests.screenshots.rows import fill
from tests.throttler.admin.conftest import add_customer, add_lane, add_owner, add_periods, store, stored
from throttler.models import Lane

ME = Operator("S. Ito")
PASSWORD = "pictures"


def fill_all() -> None:
    """A bad morning of the whole platform: once, into an empty database."""
    fill(busy=True)
    fill_letters()
    fill_flows()  # ends with a paused channel: what is to be sent goes first
    fill_others()


def fill_others() -> None:
    _accounts()
    _customers()
    _news()
    _tokens()
    _replays()
    _workers()
    _subscriptions()
    _views()


def _views() -> None:
    """One of somebody else for everybody, and one's own."""
    for name, owner, query in (
        ("Failed again this month", 0, "when=month&state=failed_again"),
        ("Ledger", 1, "state=all&source=ledger"),
    ):
        person = User.objects.get(username="ito").pk if owner else 0
        SavedView.objects.create(
            owner_number=person, owner_name="M. Ito" if owner else "A. Anders", list="outbox.deadletter", name=name, query=query,
            shared=not owner, created_at=database_now(),
        )  # fmt: skip


def _accounts() -> None:
    """Somebody with few rights, somebody with none, and their logins."""
    support = User.objects.create_user("support", password=PASSWORD, is_staff=True, first_name="N. Support")
    support.groups.add(Group.objects.get(name="Support"))
    User.objects.create_user("guest", password=PASSWORD, is_staff=True)
    told = {"ip_address": "192.0.2.7", "username": "ito", "user_agent": "Mozilla/5.0", "path_info": "/admin/login/"}
    AccessAttempt.objects.create(**told, failures_since_start=2)
    AccessFailureLog.objects.create(**told)
    AccessLog.objects.create(**told)


def _customers() -> None:
    add_periods()
    add_customer()
    add_lane()
    add_owner()
    add_customer("quiet-books", rates="5/s")
    add_lane("quiet-books", 0, timedelta(0), partition=4)
    add_customer("held-tools", rates="1/s", held=True)
    add_lane("held-tools", 1_200, timedelta(minutes=50), partition=6)
    Lane.objects.update(drained=2_000)
    store(*[stored(2_001 + number) for number in range(60)])


def _news() -> None:
    """What a provider says of mails that were sent."""
    sent = list(OutboxMessage.objects.filter(state="sent", channel="email").order_by("pk")[:6])
    now = database_now()
    kinds = ["delivered", "delivered", "bounced", "delivered", "complained", "deferred"]
    events = [
        _event(number, kind, message, now) for number, (kind, message) in enumerate(zip(kinds, sent, strict=True))
    ]
    ids = inbox.store(events, "generic", {"X-Spillway-Timestamp": str(int(now.timestamp()))}, now)
    inbox.apply(ids, now)
    suppression.add(["nobody@example.com"], ME, "Asked on the telephone")


def _event(number: int, kind: str, message: OutboxMessage, now: object) -> Event:
    to = json.loads(message.payload)["to"]
    raw = json.dumps({"id": f"e-{number}", "event": kind, "message_id": str(message.pk), "recipient": to})
    detail = "550 no such user" if kind == "bounced" else ""
    return Event(kind, f"e-{number}", raw, UUID(str(message.pk)), f"memory-{message.pk}", to, None, detail)


def _tokens() -> None:
    issue("web shop", ME, rate=50)
    issue("warehouse scanner", ME, customer_id="harbour-foods")


def _replays() -> None:
    now = database_now()
    frame = (now - timedelta(hours=7), now - timedelta(hours=6), timedelta(minutes=30))
    requests.request("PAYMENT_SUCCESS", *frame, ME, "Stock looked wrong this morning", dry_run=True)
    running = requests.request("PAYMENT_SUCCESS", *frame, ME, "What the count has found", dry_run=False)
    progress = {"state": "running", "total": 120_000, "looked_at": 74_000, "read": 71_200, "applied": 812, "parked": 3}
    TopicReplay.objects.filter(pk=running.pk).update(**progress)


def _subscriptions() -> None:
    """A channel that works, one that does not answer, and what was said there."""
    now = database_now()
    known = {"address": "sealed", "kinds": list(KINDS), "created_at": now - timedelta(days=9)}
    works = Subscription.objects.create(
        name="On-call Slack", shown="Slack", sent_at=now - timedelta(minutes=4), urgency="now", tested_at=now, **known
    )
    Subscription.objects.create(
        name="Shop team", shown="Power Automate / Workflows (for MSTeams) at prod-12.westeurope.logic.azure.com", failures=7,
        failing_since=now - timedelta(hours=1), error="HTTP 404", quiet_from=time(22), quiet_to=time(7), zone="Europe/Berlin",
        next_try_at=now + timedelta(minutes=3), digest_minutes=60, **known | {"kinds": ["failure_group", "channel"]},
    )  # fmt: skip
    dead = Incident.objects.create(
        kind="worker", key="7", title="Dead: run_throttler on app-2, process 4716", urgency="now", url="/admin/",
        opened_at=now - timedelta(minutes=7),
    )  # fmt: skip
    said = {"subscription": works, "created_at": now, "due_at": now, "tries": 1, "tried_at": now}
    Notice.objects.create(phase="test", title="A test", state="sent", sent_at=now - timedelta(minutes=1), **said)
    Notice.objects.create(
        incident=dead,
        episode=1,
        phase="opened",
        title=dead.title,
        state="sent",
        sent_at=now - timedelta(minutes=4),
        **said,
    )
    Notice.objects.create(
        incident=dead,
        episode=1,
        phase="reminded",
        title=dead.title,
        state="unsure",
        error="no answer within 10 s",
        **said,
    )


def _workers() -> None:
    """Most run; one was killed, one is silent, one was told to end."""
    now = database_now()
    held = {
        "ingest_events": ("transfer-requests 0–11", "records", 138.0),
        "relay_outbox": ("email, kafka", "messages", 14.2),
    }
    ages = [
        ("ingest_events", 4),
        ("relay_outbox", 3),
        ("flush_buffer", 6),
        ("replay_letters", 2),
        ("track_inventory", 52),
    ]
    for number, (command, age) in enumerate([*ages, ("run_throttler", 400), ("listen_outbox", 900)]):
        then, (holds, unit, rate) = now - timedelta(seconds=age), held.get(command, ("", "", 0.0))
        WorkerProcess.objects.create(
            run=uuid4(), command=command, host=f"app-{number % 2 + 1}", place="elsewhere", pid=4711 + number, mark="1",
            version="0.1.0 4f2c9d1", starts=1 + number % 3, kept_since=now - timedelta(days=3), since=now - timedelta(hours=5),
            seen_at=then, round_at=then, holds=holds, unit=unit, rate=rate, moved=int(rate * 18_000),
            missed_at=now if command == "run_throttler" else None, ended_at=then if command == "listen_outbox" else None,
        )  # fmt: skip
