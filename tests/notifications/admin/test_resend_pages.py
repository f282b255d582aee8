"""A mail that somebody says they never got: from the order's number to a second one in three clicks."""

from __future__ import annotations

import json
from html import unescape

import pytest
from django.test import Client

from config.database.clock import database_now
from notifications.mail import suppression
from notifications.mail.content import short
from notifications.orders import changes
from outbox.models import OutboxMessage, Resend
from tests.config.admin.conftest import client_with, lever_of, page_of
from tests.notifications.conftest import ME

WHY = "she never got it"


@pytest.fixture
def mail(order) -> OutboxMessage:
    changes.change(order.pk, "pay")
    OutboxMessage.objects.update(state="sent", sent_at=database_now())
    return OutboxMessage.objects.get()


def ask(client: Client, mail: OutboxMessage, **given: str):
    data = {"id": str(mail.pk), "confirmed": "1", "reason": WHY, "text": "", **given}
    return client.post(lever_of(OutboxMessage, "resend"), data, follow=True)


def said(response) -> str:
    return " ".join(map(str, response.context["messages"]))


def test_from_the_number_in_the_mail_to_a_second_mail(boss, order, mail):
    found = boss.get("/admin/find/", {"q": short(order.pk)}, follow=True)  # the search leads to the only hit
    html = found.content.decode()
    (link,) = [part.split('"')[0] for part in html.split('href="') if "lever/resend" in part]
    form = boss.get(unescape(link)).content.decode()
    assert "To another address" in form
    assert "ada@" not in form
    assert said(ask(boss, mail)) == "Sent again 1 message."
    again = Resend.objects.get()
    sent, before = (json.loads(row.payload) for row in (OutboxMessage.objects.get(pk=again.pk), mail))
    assert sent == {**before, "headers": sent["headers"]}
    html = boss.get(page_of(order)).content.decode()
    assert html.count("sent again") == 2  # among the mails, and in the timeline
    assert "the first message" in boss.get(page_of(OutboxMessage.objects.get(pk=again.pk))).content.decode()
    assert "Sent again" in boss.get(page_of(mail)).content.decode()


def test_another_address_may_be_given(boss, order, mail):
    ask(boss, mail, text=" Ada.L@Example.COM ")
    again = Resend.objects.get()
    sent, before = (json.loads(row.payload) for row in (OutboxMessage.objects.get(pk=again.pk), mail))
    assert sent == {**before, "to": "Ada.L@example.com", "headers": sent["headers"]}
    assert again.readdressed
    assert ", to another address" in boss.get(page_of(mail)).content.decode()


@pytest.mark.parametrize(
    "address", ["ada", "a@b.example, c@d.example", "ada@example.com\nBcc: x@y.example", "x" * 300 + "@example.com"]
)
def test_an_address_that_is_none_is_refused(boss, mail, address):
    assert "Nothing was changed." in said(ask(boss, mail, text=address))
    assert not Resend.objects.exists()


def test_a_word_without_an_at_is_said_to_be_one(boss, mail):
    assert "There is no @ in it" in said(ask(boss, mail, text="nobody"))


def test_a_suppressed_address_is_refused_and_another_one_is_not(boss, mail):
    suppression.add(["ada@example.com"], ME, "she asked us to")
    assert "give another address, or lift what stops this one" in said(ask(boss, mail))
    assert said(ask(boss, mail, text="ada.l@example.com")) == "Sent again 1 message."


def test_it_needs_its_own_right(db, mail, order):
    without = client_with("view_order", "view_outboxmessage", "cancel_outboxmessage", "send_again_outboxmessage")
    assert "lever/resend" not in without.get(page_of(order)).content.decode()
    assert ask(without, mail).status_code == 403
    assert not Resend.objects.exists()
    allowed = client_with("view_order", "view_outboxmessage", "resend_outboxmessage")
    assert "lever/resend" in allowed.get(page_of(order)).content.decode()
    ask(allowed, mail)
    assert Resend.objects.exists()


def test_the_api_names_both(caller, boss, order, mail):
    ask(boss, mail)
    first, again = caller.get(f"/v1/orders/{order.pk}").json()["messages"]
    assert (first["id"], first["resent_from"], first["state"]) == (str(mail.pk), None, "sent")
    assert (again["resent_from"], again["state"], again["event_type"]) == (str(mail.pk), "pending", "order.paid")
