"""A string planted in what the flows read: mails, their answers, records. Nobody meets it before it is revealed."""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Iterator

import pytest
from django.contrib import admin
from django.core.management import call_command
from django.db import transaction
from django.urls import reverse

from buffer.ingest.handler import Ingest
from buffer.ledger.handler import Track
from buffer.streams import streams
from config.admin.levers import ROLES, Operator
from config.admin.pages import ReadOnlyAdmin
from config.database.clock import database_now
from config.kafka import RecordBatch, Replayed
from notifications.channels.local import Memory
from notifications.orders import changes
from outbox.channels import handlers as registry
from outbox.channels.handlers import Outcome, handlers
from outbox.channels.models import ChannelState
from outbox.channels.permits import OUTAGES_IN_A_ROW
from outbox.delivery.claim import claim
from outbox.delivery.deliver import deliver
from outbox.letters.burial import bury
from outbox.letters.filters import Filter
from outbox.letters.models import DeadLetter
from outbox.models import OperatorAction, OutboxMessage
from outbox.replay_batches import requests
from outbox.replay_batches.run import BatchWorker
from tests.outbox.audit_log.test_reveal import SECRET, client_of, seen
from throttler.engine.decisions import decode
from throttler.messages import gate

pytestmark = pytest.mark.django_db(transaction=True)
SAYS = f"550 5.1.1 <x{SECRET}@example.com>: no mailbox '{SECRET}' for {SECRET}"
MOST = 12  # rows of a kind whose pages are opened


@pytest.fixture(autouse=True)
def _plain(settings, monkeypatch):
    settings.SECURE_SSL_REDIRECT = False
    settings.EMAIL_CHANNEL = "memory"
    monkeypatch.setattr(registry, "installed", {})
    yield
    Memory.clear()


def mail() -> None:
    order = changes.create(f"x{SECRET}@example.com", 1999, "EUR", database_now())
    changes.change(order.pk, "pay")


def relay(*outcomes: Outcome) -> None:
    Memory.script[:] = outcomes
    while (found := claim(handlers()["email"], "poll", 1)).messages:
        deliver(found, handlers()["email"], threading.Event())


def mails(monkeypatch) -> None:
    """A mail for each way in which a try can end badly; the last one closes the channel."""
    for kind in ("permanent", "transient", "ambiguous"):
        mail()
        relay(Outcome(kind, SAYS))
    mail()
    with monkeypatch.context() as broken:
        broken.setattr(Memory, "send", lambda self, mail, key: {}[SECRET])
        relay()
    mail()


def records() -> None:
    """What three gates refuse, with the string in key, header and value."""
    at = int(database_now().timestamp() * 1000)

    def record(topic: str, value: str) -> Replayed:
        return Replayed(topic, 0, 7, at, SECRET.encode(), value.encode(), [("x", SECRET.encode()), (SECRET, b"1")])

    stream = streams()["transfer-requests"]
    batch = RecordBatch([record("transfer-requests", f'{{"order_id": 5, "items": "{SECRET}", "{SECRET}": 1}}')], {})
    letters = [*Ingest(stream).prepare(batch).letters]
    notice = record("notifications-in", f'{{"notification_id": 5, "recipient": "{SECRET}"}}')
    letters.append(decode(notice, gate(), "t1").letter)
    bury(letters, "buffer-ingest", database_now())
    stock = RecordBatch([record("PAYMENT_SUCCESS", f'{{"saleOrderId": {{"{SECRET}": 1}}}}')], {"PAYMENT_SUCCESS": "t"})
    stock.prepared = Track().prepare(stock)
    with transaction.atomic():
        Track().write(stock, database_now())


def replayed() -> None:
    """A batch whose letters are refused once more, in the same words."""
    worker, somebody = BatchWorker(threading.Event()), Operator("Anna")
    batch = requests.draft("requeue", Filter(source="outbox"), somebody)
    for _ in range(30):
        worker.due.clear()
        worker.steps.looked_at.clear()
        worker.tick()
        batch.refresh_from_db()
        if batch.state == "previewed":
            requests.confirm(batch.pk, somebody, "the mailbox is there now", canary=1)
            requests.start_now(batch.pk, somebody)
        relay(*[Outcome("permanent", SAYS)] * 3)


def pages() -> Iterator[str]:
    """Every list in every state and the pages of its rows, home, search, metrics, and what levers ask first."""
    yield from ("/admin/", "/admin/?part=1", "/metrics", "/admin/find/?q=transfer-requests/0/7")
    for model, page in admin.site._registry.items():
        if not isinstance(page, ReadOnlyAdmin):
            continue
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        listed, filtered = (
            reverse(f"{name}_changelist"),
            {getattr(one, "parameter_name", "") for one in page.list_filter},
        )
        yield from [listed, *([f"{listed}?state=all"] if "state" in filtered else [])]
        keys = list(model._default_manager.order_by("-pk").values_list("pk", flat=True)[:MOST])
        yield from (reverse(f"{name}_change", args=[key]) for key in keys)
        asked = "&".join(f"id={key}" for key in keys[:3])
        yield from (f"{page.lever_url(lever)}?{asked}" for lever in page.levers if keys)
    for letter in DeadLetter.objects.all()[:MOST]:
        yield reverse("admin:outbox_deadletter_edit", args=[letter.pk])
    items, batch = reverse("admin:outbox_replayitem_changelist"), "batch__id__exact=1"
    yield from (
        f"{items}?{batch}&state={state}" for state in ("failed_again", "skipped", "refused", "verified", "left")
    )


def commands() -> str:
    said = io.StringIO()
    for arguments in (
        ["list"],
        ["show", "--all"],
        ["batches"],
        ["batches", "--json"],
        ["requeue", "--all", "--dry-run"],
    ):
        call_command("dead_letters", *arguments, stdout=said)
    return said.getvalue()


@pytest.mark.parametrize(
    ("last", "roles"),
    [
        ([Outcome("auth", f"401 for {SECRET}")], ["superuser", *ROLES]),
        ([Outcome("unreachable", SAYS)] * OUTAGES_IN_A_ROW, ["superuser", "Support"]),  # no role but shows a channel
    ],
    ids=["auth", "breaker"],
)
def test_nobody_meets_it(last, roles, monkeypatch, caplog):
    with caplog.at_level(logging.INFO):
        mails(monkeypatch)
        records()
        replayed()
        for _ in last:
            mail()
        OutboxMessage.objects.filter(state="pending").update(available_at=database_now())
        relay(*last * 3)
        for role in roles:
            client = client_of(role)
            for url in dict.fromkeys(pages()):
                assert SECRET not in seen(client, url), (role, url)
    assert SECRET not in caplog.text
    assert SECRET not in commands()
    assert SECRET not in str(list(OperatorAction.objects.values()))
    # It is there, and in every flow: otherwise nothing was looked for.
    assert {"outbox", "transfer-requests", "ledger", "throttler"} <= {one.source for one in DeadLetter.objects.all()}
    assert OutboxMessage.objects.filter(error__contains=SECRET).exists()
    channel = ChannelState.objects.get(name="email")
    assert channel.paused if len(last) == 1 else (channel.breaker, SECRET in channel.last_error) == ("open", True)
