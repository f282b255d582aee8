"""Hidden values: dots for everybody, superusers too, until somebody with the right reveals one row for a reason."""

from __future__ import annotations

import logging
import re
import uuid
from base64 import b64encode
from datetime import timedelta

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import Client
from django.urls import reverse

from buffer.models import Batch
from config.admin.levers import ROLES
from config.admin.pages import ReadOnlyAdmin
from config.database.clock import database_now
from config.kafka import Replayed
from config.telemetry.redaction import DOTS
from notifications.mail.deliveries import Delivery
from notifications.mail.suppression import Suppression
from notifications.orders.models import Order
from notifications.webhooks.inbox import WebhookEvent
from outbox.audit_log import reveal
from outbox.letters.burial import Letter, bury
from outbox.messages.publish import publish
from outbox.models import DeadLetter, FailureGroup, OperatorAction, OutboxMessage, PayloadRevision

pytestmark = pytest.mark.django_db
SECRET = "zq-planted-7f3a"
LINK = re.compile(r'href="([^"]*)"')
REASON = "The customer called"


def client_of(role: str) -> Client:
    client = Client()
    if role == "superuser":
        client.force_login(User.objects.create_superuser("root"))
        return client
    user = User.objects.create_user(role, is_staff=True)
    user.groups.set([Group.objects.get(name=role)])
    client.force_login(user)
    return client


@pytest.fixture
def letter() -> DeadLetter:
    """A letter with the string in payload, key, headers, error and traceback."""
    record = Replayed(
        "transfer-requests", 0, 7, 1_700_000_000_000, SECRET.encode(),
        f'{{"order_id": "A-1", "note": "{SECRET}", "{SECRET}": 1}}'.encode(), [("x-user", SECRET.encode()), (SECRET, b"1")],
    )  # fmt: skip
    bury(
        [Letter("transfer-requests", "decode", "invalid_json", f"cannot read '{SECRET}'", record, error_class="ValueError",
                traceback=f"ValueError: {SECRET}", business_key="A-1")],
        "buffer-ingest", database_now(),
    )  # fmt: skip
    return DeadLetter.objects.get()


@pytest.fixture
def planted(letter):
    """A row of every kind that holds hidden values."""
    now, address = database_now(), f"x{SECRET}@example.com"
    order = Order.objects.create(user_email=address, total_amount=1, currency="EUR", created_at=now, updated_at=now)
    mail = {
        "to": address,
        "from": "a@b.example",
        "subject": SECRET,
        "text": SECRET,
        "html": SECRET,
        "headers": {"X": SECRET},
    }
    with transaction.atomic():
        publish("order.paid", f"order:{order.pk}", mail, idempotency_key="k")
    OutboxMessage.objects.update(error=f"says '{SECRET}'")
    message = OutboxMessage.objects.get()
    delivery = Delivery.objects.create(
        message_id=message.pk,
        recipient=address,
        provider="smtp",
        status_at=now,
        accepted_at=now,
        updated_at=now,
        detail=SECRET,
    )
    event = WebhookEvent.objects.create(
        provider="smtp", dedup_id="1", kind="bounced", body=f'{{"to": "{SECRET}"}}', headers={"X": SECRET}, recipient=address,
        detail=SECRET, occurred_at=now, received_at=now,
    )  # fmt: skip
    batch = Batch.objects.create(
        batch_id=uuid.uuid4(), stream="transfer-requests", location_id="WH-1", sequence=1, reason="idle", partition_key=202611,
        event_count=1, payload=f'{{"items": [], "order_ids": ["A-1"], "note": "{SECRET}"}}', headers={"X": SECRET},
        claimed_at=now, error=f"says '{SECRET}'", status="parked",
    )  # fmt: skip
    suppressed = Suppression.objects.create(
        address=address, address_hash="0" * 32, reason="manual", note=SECRET, since=now
    )
    PayloadRevision.objects.create(
        letter=letter.pk, number=1, payload=f'{{"note": "{SECRET}2"}}'.encode(), created_at=now
    )
    return [letter, order, message, delivery, event, batch, suppressed]


def page_of(row) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


def reveal_of(row) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_reveal", args=[row.pk])


def seen(client: Client, url: str) -> str:
    answer = client.get(url, follow=True)
    assert answer.status_code in (200, 403), url
    return answer.content.decode()


# -- Before anything is revealed -----------------------------------------------------------------------
@pytest.mark.parametrize("role", ["superuser", *ROLES])
def test_a_planted_string_is_on_no_page(planted, role, caplog):
    client = client_of(role)
    lists = [
        reverse(f"admin:{page.opts.app_label}_{page.opts.model_name}_changelist")
        for page in admin.site._registry.values()
        if isinstance(page, ReadOnlyAdmin)
    ]
    groups = [page_of(group) for group in FailureGroup.objects.all()]
    with caplog.at_level(logging.INFO):
        for url in [
            "/admin/",
            "/admin/?part=1",
            "/metrics",
            *lists,
            *map(page_of, planted),
            *groups,
            "/admin/find/?q=A-1",
            reverse("admin:outbox_deadletter_edit", args=[planted[0].pk]),
        ]:
            assert SECRET not in seen(client, url), url
        body = client.get(reverse("admin:outbox_outboxmessage_body", args=[planted[2].pk]))
    assert body.status_code == 403
    assert SECRET not in caplog.text
    assert SECRET not in str(list(OperatorAction.objects.values()))


def test_errors_lose_addresses_when_they_are_written():
    record = Replayed("transfer-requests", 0, 8, 1_700_000_000_000, b"k", b"{}", [])
    text = "550 5.1.1 ada@example.com: no such user"
    bury([Letter("transfer-requests", "decode", "x", text, record, traceback=text)], "buffer-ingest", database_now())
    letter = DeadLetter.objects.get()
    assert letter.error == letter.traceback == "550 5.1.1 <address>: no such user"


# -- Revealing ---------------------------------------------------------------------------------------------
def test_the_right_and_a_reason_reveal_one_row_to_one_person(planted):
    letter = planted[0]
    client = client_of("Senior support")
    assert client.post(reveal_of(letter), {"reason": REASON}).status_code == 302
    html = seen(client, page_of(letter))
    assert html.count(SECRET) >= 5, "payload, key, header, error, traceback"
    assert REASON in html
    assert SECRET not in seen(client, page_of(planted[1])), "another row"
    assert SECRET not in seen(client_of("superuser"), page_of(letter)), "another person"
    (action,) = OperatorAction.objects.all()
    assert (action.verb, action.subject_type, action.subject_id) == ("reveal", "outbox.deadletter", str(letter.pk))
    assert action.reason == REASON
    assert SECRET not in str(OperatorAction.objects.values().get())


def test_every_kind_of_row_can_be_revealed(planted):
    client = client_of("superuser")
    for row in planted:
        client.post(reveal_of(row), {"reason": REASON})
        assert SECRET in seen(client, page_of(row)), row
    body = client.get(reverse("admin:outbox_outboxmessage_body", args=[planted[2].pk]))
    assert SECRET in body.content.decode()
    assert OperatorAction.objects.filter(verb="reveal").count() == len(planted)


def test_a_reveal_ends_by_itself_and_by_hand(planted, settings, monkeypatch):
    letter, client = planted[0], client_of("superuser")
    client.post(reveal_of(letter), {"reason": REASON})
    monkeypatch.setattr(reveal, "database_now", lambda: database_now() + timedelta(seconds=settings.REVEAL_SECONDS - 5))
    assert SECRET in seen(client, page_of(letter))
    monkeypatch.setattr(reveal, "database_now", lambda: database_now() + timedelta(seconds=settings.REVEAL_SECONDS + 1))
    assert SECRET not in seen(client, page_of(letter))
    monkeypatch.undo()
    settings.SECURE_SSL_REDIRECT = False
    assert SECRET in seen(client, page_of(letter))
    client.post(reveal_of(letter), {"hide": "1"})
    assert SECRET not in seen(client, page_of(letter))
    assert [action.verb for action in OperatorAction.objects.order_by("pk")] == ["reveal", "mask_again"]


@pytest.mark.parametrize("reason", ["", "   ", "x", "too short"])
def test_without_a_reason_nothing_is_revealed(planted, reason):
    client = client_of("superuser")
    client.post(reveal_of(planted[0]), {"reason": reason})
    html = seen(client, page_of(planted[0]))
    assert SECRET not in html
    assert not OperatorAction.objects.exists()


@pytest.mark.parametrize("role", ["Support", "Auditor"])
def test_without_the_right_it_is_403_and_recorded(planted, role):
    client = client_of(role)
    for row in planted:
        assert client.post(reveal_of(row), {"reason": REASON}).status_code == 403
        assert SECRET not in seen(client, page_of(row))
    assert OperatorAction.objects.filter(verb="refused").count() == len(planted)
    assert "Senior support" in seen(client, page_of(planted[0]))


def test_the_right_to_reveal_is_no_right_to_look(planted):
    """A row that somebody may not see is not revealed, and does not stand in the trail as if it had been."""
    user = User.objects.create_user("curious", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_payload"))
    client = Client()
    client.force_login(user)
    for row in planted:
        assert client.post(reveal_of(row), {"reason": REASON}).status_code == 403
    assert set(OperatorAction.objects.values_list("verb", flat=True)) == {"refused"}


def test_what_was_revealed_is_hidden_from_whoever_may_not_look_any_more(planted):
    """No address of a row shows its values by the right to reveal alone: not the frame of a mail, nor the form of a copy."""
    client, user = client_of("Senior support"), User.objects.get()
    for row in planted:
        client.post(reveal_of(row), {"reason": REASON})
    user.groups.clear()
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_payload", "edit_deadletter"]))
    body = reverse("admin:outbox_outboxmessage_body", args=[planted[2].pk])
    for url in [*map(page_of, planted), body, reverse("admin:outbox_deadletter_edit", args=[planted[0].pk])]:
        assert client.get(url).status_code == 403, url
        assert SECRET not in seen(client, url)


def test_who_loses_the_right_sees_dots_at_once(planted):
    client = client_of("Senior support")
    client.post(reveal_of(planted[0]), {"reason": REASON})
    User.objects.get(username="Senior support").groups.clear()
    User.objects.get(username="Senior support").user_permissions.set(
        Group.objects.get(name="Support").permissions.all()
    )
    html = seen(client, page_of(planted[0]))
    assert SECRET not in html
    assert DOTS in html


def test_a_get_reveals_nothing(planted):
    client = client_of("superuser")
    assert client.get(reveal_of(planted[0])).status_code == 403
    assert not OperatorAction.objects.exists()


def test_the_row_says_on_its_page_who_saw_it(planted):
    client = client_of("Senior support")
    client.post(reveal_of(planted[0]), {"reason": REASON})
    assert f"“{REASON}”" in seen(client_of("Support"), page_of(planted[0]))


# -- The command -------------------------------------------------------------------------------------------
def shown(capsys, *arguments: str, **options) -> str:
    call_command("dead_letters", "show", *arguments, **options)
    return capsys.readouterr().out


def test_the_command_masks_unless_it_is_told_why_not(letter, capsys):
    hidden = shown(capsys, str(letter.pk))
    assert SECRET not in hidden
    assert b64encode(bytes(letter.payload)).decode() not in hidden
    assert '"order_id":"A-1"' in hidden
    assert not OperatorAction.objects.exists()
    assert shown(capsys, str(letter.pk), reveal=True, reason=REASON).count(SECRET) >= 4
    (action,) = OperatorAction.objects.all()
    assert (action.verb, action.reason, action.subject_id) == ("reveal", REASON, str(letter.pk))


@pytest.mark.parametrize("reason", ["", "short"])
def test_the_command_reveals_nothing_without_a_reason(letter, capsys, reason):
    with pytest.raises(CommandError, match="--reveal --reason"):
        shown(capsys, str(letter.pk), reveal=True, reason=reason)
    assert SECRET not in capsys.readouterr().out
    assert not OperatorAction.objects.exists()
