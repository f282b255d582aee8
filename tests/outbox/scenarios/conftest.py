"""A shop with orders, a mail server that answers as told, a relay and a replay worker that take turns, people with browsers."""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings as configured
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from config.admin import home
from config.database.clock import database_now
from config.environment.mail import MailServer
from notifications.orders import changes
from notifications.orders.models import Order
from outbox.channels import handlers as registry
from outbox.channels.models import ChannelState
from outbox.channels.permits import ensure
from outbox.delivery.candidates import lower_bound
from outbox.delivery.claim import claim
from outbox.delivery.deliver import deliver
from outbox.models import OutboxMessage
from outbox.replay_batches.models import ReplayBatch
from outbox.replay_batches.run import BatchWorker
from tests.config.admin.test_browser import SOON, chromium, live_server
from tests.notifications.refusals import WORDS, reply
from tests.notifications.smtp_sink import Sink
from tests.outbox.replay_batches.scripted_flow import assert_counted, leave, step

__all__ = ["chromium", "live_server"]

# By hand once with SCENARIO_LETTERS=5000, as many as ten minutes of a busy shop bring.
LETTERS = int(os.environ.get("SCENARIO_LETTERS", "150"))
DOMAINS = ("gmail.com", "full.gmail.com", "outlook.com")  # one for each of WORDS


class Shop:
    """The flows themselves, step by step: nothing here writes a letter, a group or a receipt."""

    def __init__(self, sink: Sink, settings: Any) -> None:
        self.sink, self.settings = sink, settings
        self.chance = random.Random(17)
        self.worker = BatchWorker(threading.Event())
        self.settings.EMAIL_SERVER = MailServer("127.0.0.1", sink.port)

    # -- What happens outside ----------------------------------------------------------------------
    def sells(self, number: int = 1) -> list[Order]:
        """So many orders, each paid: a mail each."""
        return [self._sell(at) for at in range(number)]

    def _sell(self, at: int) -> Order:
        order = changes.create(f"ada.{at}@{DOMAINS[at % len(DOMAINS)]}", 1999, "EUR", database_now())
        return changes.change(order.pk, "pay")

    def server_is_away(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            nobody = probe.getsockname()[1]
        self._moved_to(nobody)

    def server_refuses(self) -> None:
        """Every recipient, in the words of whoever they have their mailbox with."""
        self._moved_to(self.sink.port)
        words = dict(zip(DOMAINS, WORDS, strict=True))
        self.sink.refuse = lambda recipient: reply(550, words[recipient.rpartition("@")[2]](self.chance))

    def server_accepts(self) -> None:
        self._moved_to(self.sink.port)
        self.sink.refuse = lambda recipient: ""

    def server_fails_every_tenth(self) -> None:
        seen = iter(range(1, 10**9))
        self.sink.refuse = lambda recipient: "" if next(seen) % 10 else "550 5.7.1 Not this one"

    def _moved_to(self, port: int) -> None:
        self.settings.EMAIL_SERVER = MailServer("127.0.0.1", port)
        registry.installed.clear()

    # -- The workers -------------------------------------------------------------------------------
    def relay(self) -> None:
        """Send what is due, until nothing is; what a breaker or a backoff puts off is due at once."""
        handler = registry.handlers()["email"]
        now = database_now()
        ChannelState.objects.broken().update(probe_at=now)
        OutboxMessage.objects.pending().update(available_at=now)
        while (found := claim(handler, "poll", 100)).messages:  # type: ignore[arg-type]
            deliver(found, handler, threading.Event())

    def sends(self, most: int) -> int:
        """One claim of so many messages, in the order in which they are due."""
        handler = registry.handlers()["email"]
        return deliver(claim(handler, "poll", most), handler, threading.Event())  # type: ignore[arg-type]

    def work(self, batch: ReplayBatch, *states: str, new_worker: bool = False) -> ReplayBatch:
        """Worker and relay in turn until the batch is in one of these states; its hold and its ramp are over at once.

        `new_worker`: each step by a worker of its own, as after a restart.
        """
        for _ in range(200 + LETTERS):
            now = database_now()
            ReplayBatch.objects.filter(pk=batch.pk, state="holding").update(hold_until=now)
            ReplayBatch.objects.filter(pk=batch.pk).update(ramp_from=None, tokens=LETTERS, tokens_at=now)
            step(1, None if new_worker else self.worker)
            self.relay()
            batch.refresh_from_db()
            if batch.state in states:
                assert_counted(batch)
                return batch
        raise AssertionError(f"{batch.state}: {batch.note}")

    def count(self) -> ReplayBatch:
        """The newest batch, counted."""
        batch = ReplayBatch.objects.latest("pk")
        for _ in range(50 + LETTERS // 100):
            batch.refresh_from_db()
            if batch.state == "previewed":
                leave(self.worker)
                return batch
            step(1, self.worker)
        raise AssertionError(f"{batch.state}: {batch.note}")


@pytest.fixture
def shop(db: None, settings: Any) -> Iterator[Shop]:
    settings.HANDLERS = {"email": "notifications.email_handler.EmailHandler"}
    settings.EMAIL_CHANNEL = "smtp"
    settings.EMAIL_WINDOW = 10
    settings.EMAIL_TIMEOUT_SECONDS = 5
    lower_bound.forget()
    ensure(["email"])
    with Sink() as sink:
        registry.installed.clear()
        yield Shop(sink, settings)
        for handler in registry.installed.values():
            handler.channel.close()  # type: ignore[attr-defined]
    registry.installed.clear()


class Person:
    """Somebody at a browser, whose clicks are counted; what is typed is not."""

    def __init__(self, page: Any) -> None:
        self.page, self.clicks = page, 0

    def goes_to(self, url: str) -> None:
        self.page.goto(url)

    def clicks_on(self, what: str) -> None:
        self.page.locator(what).first.click()
        self.clicks += 1

    def searches(self, key: str) -> None:
        self.page.goto("/admin/")
        self.page.keyboard.press("/")
        self.page.keyboard.type(key)
        self.page.keyboard.press("Enter")
        self.page.wait_for_load_state()

    def sees(self, text: str) -> None:
        self.page.wait_for_selector(f"text={text}")

    def confirms(self, number: int, reason: str) -> None:
        """The preview of a batch: reason, a rate without a ramp worth waiting for, and where it is asked for the count."""
        self.sees("look before you start")
        self.page.fill("#id_rate", "10000")
        self.page.fill("#id_reason", reason)
        if self.page.locator("#id_typed").count():
            self.page.fill("#id_typed", str(number))
        self.clicks_on(f"button:has-text('Requeue {number:,} letter')")


@pytest.fixture
def two_databases(transactional_db: None) -> None:
    """Four would say the same, and a browser needs a core for itself."""
    if connection.vendor == "sqlite" or (connection.vendor == "mysql" and not connection.mysql_is_mariadb):
        pytest.skip("PostgreSQL and MariaDB are enough for people with browsers")


@pytest.fixture
def person(
    two_databases: None, chromium: Any, live_server: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Person]]:
    """person(name): who has logged in in a browser of their own; what breaks the policy fails the test."""
    monkeypatch.setattr(home, "REFRESH_SECONDS", 0.2)
    contexts, complaints = [], []

    def come(name: str) -> Person:
        client = Client()
        client.force_login(User.objects.create_superuser(name))
        context = chromium.new_context(base_url=live_server.url)
        session = client.cookies[configured.SESSION_COOKIE_NAME].value
        context.add_cookies([{"name": configured.SESSION_COOKIE_NAME, "value": session, "url": live_server.url}])
        page = context.new_page()
        page.set_default_timeout(2 * SOON)
        page.on("console", lambda message: message.type == "error" and complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        contexts.append(context)
        return Person(page)

    yield come
    for context in contexts:
        context.close()
    assert complaints == []
