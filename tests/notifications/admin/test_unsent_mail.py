"""From an order without its mail to its letter and a requeue; and from a lifted suppression to the letters of its address."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from config.database.clock import database_now
from notifications.channels.local import Memory
from notifications.mail import suppression
from notifications.models import Suppression
from notifications.orders.models import Order
from outbox.channels.handlers import Outcome
from outbox.letters.models import DeadLetter
from outbox.models import ChannelState, OutboxMessage
from tests.config.admin.conftest import client_with, lever_of, list_of, page_of, seen
from tests.notifications.conftest import ME
from tests.notifications.post import email, go, paid  # noqa: F401 (a fixture)

WHY = "the customer called again"
STATES = "Its states so far</h2>"
NO_USER = Outcome("permanent", "550 5.1.1 no such user")


def with_role(name: str) -> Client:
    user = User.objects.create_user(f"somebody of {name}", is_staff=True)
    user.groups.set([Group.objects.get(name=name)])
    client = Client()
    client.force_login(user)
    return client


def refused(email, address: str = "ada@example.com") -> OutboxMessage:  # noqa: F811
    message = paid(address)
    Memory.script[:] = [NO_USER]
    go(email)
    return OutboxMessage.objects.get(pk=message.pk)


def order_of(message: OutboxMessage) -> str:
    return page_of(Order.objects.get(pk=message.aggregate.removeprefix("order:")))


def links(html: str, name: str) -> list[str]:
    return [unescape(url) for url in re.findall(rf'href="([^"]+/lever/{name}/[^"]*)"', html)]


# -- An order without its mail -------------------------------------------------------------------------------
def test_from_an_order_to_a_requeue_in_two_clicks(email):  # noqa: F811
    support, message = with_role("Support"), refused(email)
    letter = DeadLetter.objects.get()
    html = seen(support, order_of(message))
    assert "550 5.1.1 no such user" in html
    assert f'href="{page_of(letter)}"' in html
    (url,) = links(html, "requeue")  # the first click; the second one confirms it
    answer = support.post(url, {"id": letter.pk, "reason": WHY})
    assert answer.url == page_of(letter)  # which says when it is proven
    letter.refresh_from_db()
    assert letter.status == "requeued"
    html = seen(support, order_of(message))
    assert not links(html, "requeue")
    assert "no such user" not in html  # what is tried again has no error yet


def test_a_dead_mail_goes_to_another_address_from_its_order_and_from_its_own_page(email):  # noqa: F811
    message = refused(email)
    edits = f'href="{reverse("admin:outbox_deadletter_edit", args=[DeadLetter.objects.get().pk])}"'
    for role, offered in (("Senior support", True), ("Support", False)):
        client = with_role(role)
        assert (edits in seen(client, order_of(message))) is offered, role
        assert (edits in seen(client, page_of(message))) is offered, role


def test_only_those_who_may_find_the_levers(email):  # noqa: F811
    message = refused(email)
    html = seen(with_role("Auditor"), order_of(message))
    assert "550 5.1.1 no such user" in html
    assert "/lever/" not in html


@pytest.mark.parametrize(
    ("state", "name", "right"),
    [
        ("sent", "resend", "resend_outboxmessage"),
        ("uncertain", "send-again", "send_again_outboxmessage"),
        ("pending", "try-now", "cancel_outboxmessage"),
    ],
)
def test_each_state_of_a_mail_has_its_lever(email, state, name, right):  # noqa: F811
    message = paid()
    OutboxMessage.objects.update(state=state)
    for codename, number in ((right, 1), ("view_outboxmessage", 0)):
        assert len(re.findall("/lever/", seen(client_with("view_order", codename), order_of(message)))) == number
    assert links(seen(client_with("view_order", right), order_of(message)), name)


def test_a_mail_that_waits_for_its_channel_says_so(boss, email):  # noqa: F811
    message = paid()
    ChannelState.objects.filter(pk="email").update(paused=True, pause_reason="the provider moves house")
    assert "the provider moves house" in seen(boss, order_of(message))


def test_a_mail_that_was_made_anew_leads_to_the_newest_letter(boss, email):  # noqa: F811
    message = refused(email)
    first = DeadLetter.objects.get()
    last = DeadLetter.objects.create(
        group_id=first.group_id, source="outbox", step="deliver", reason="refused", error="552 full", revision=1,
        topic_id=str(first.group_id), business_key=first.business_key, created_at=first.created_at, updated_at=first.created_at,
    )  # fmt: skip
    DeadLetter.objects.filter(pk=last.pk).update(topic_id=str(last.pk))
    DeadLetter.objects.filter(pk=first.pk).update(status="failed_again", carrier=last.pk)
    html = seen(boss, order_of(message))
    assert f'href="{page_of(last)}"' in html
    assert f'href="{page_of(first)}"' not in html


def test_a_message_names_its_letter_before_anything_that_cannot_be_done(email):  # noqa: F811
    support, message = with_role("Support"), refused(email)
    letter = DeadLetter.objects.get()
    html = seen(support, page_of(message))
    assert html.index("It is not sent any more.") < html.index(f'href="{page_of(letter)}"') < html.index(STATES)
    assert links(html, "requeue") == [lever_of(DeadLetter, "requeue", letter)]
    assert html.index(STATES) < html.index(" the right “cancel")
    html = seen(client_with("view_outboxmessage", "cancel_outboxmessage"), page_of(message))
    assert html.index(STATES) < html.index("Not possible now: try now")
    DeadLetter.objects.update(status="discarded")
    html = seen(support, page_of(message))
    assert f'href="{page_of(letter)}"' in html
    assert not links(html, "requeue")


# -- A letter is watched until its effect is proven ----------------------------------------------------------
def test_the_page_of_a_requeued_letter_refreshes_until_it_is_proven(email):  # noqa: F811
    support = with_role("Support")
    refused(email)
    letter = DeadLetter.objects.get()
    assert "refresh.js" not in seen(support, page_of(letter))
    support.post(lever_of(DeadLetter, "requeue", letter), {"id": letter.pk, "reason": WHY})
    html = seen(support, page_of(letter))
    assert "refresh.js" in html
    assert 'data-live="?part=1"' in html
    part = seen(support, f"{page_of(letter)}?part=1")
    assert "data-refresh" in part
    assert "data-live" in part
    assert "<html" not in part
    assert "waiting for proof" in part
    DeadLetter.objects.update(status="resolved")
    last = seen(support, f"{page_of(letter)}?part=1")
    assert "data-live" in last  # it is laid over the page, and is the last: nothing asks for another one
    assert "data-refresh" not in last
    assert "Resolved" in last


def test_nobody_watches_a_letter_for_hours(boss, email):  # noqa: F811
    refused(email)
    now, letter = database_now(), DeadLetter.objects.get()
    for ago, watched in ((timedelta(minutes=9), True), (timedelta(minutes=11), False)):
        DeadLetter.objects.update(status="requeued", requeued_at=now - ago)
        assert ("data-refresh" in seen(boss, page_of(letter))) is watched


# -- A suppression is lifted ---------------------------------------------------------------------------------
def lifted(client: Client, *addresses: str):
    rows = list(Suppression.objects.of(addresses))
    return client.post(
        lever_of(Suppression, "lift", *rows), {"id": [row.pk for row in rows], "reason": WHY}, follow=True
    )


def test_lifting_ends_at_the_list_with_the_letters_of_the_address(email):  # noqa: F811
    support = with_role("Support")
    suppression.add(["ada@example.com", "bob@example.com"], ME, "asked by telephone")
    message, _other = paid("Ada@example.com"), paid("bob@example.com")
    go(email)
    mine = DeadLetter.objects.get(topic_id=str(message.pk))
    OutboxMessage.objects.filter(pk=mine.topic_id).update(aggregate="ticket:1")
    DeadLetter.objects.filter(pk=mine.pk).update(business_key="ticket:1")  # as of a mail that is of no order
    answer = lifted(support, "ada@example.com")
    html = answer.content.decode()
    assert answer.redirect_chain == [(list_of(Suppression), 302)]
    assert "Perhaps it was deleted" not in html
    assert "Lifted 1 suppression. 1 letter to it is open." in html
    assert "ada@" not in html
    (url,) = links(html, "requeue")
    assert url == lever_of(DeadLetter, "requeue", mine)
    support.post(url, {"id": mine.pk, "reason": WHY})
    go(email)
    assert [json.loads(row.payload)["to"] for row in OutboxMessage.objects.filter(state="sent")] == ["Ada@example.com"]


def test_the_search_for_an_address_lifts_its_suppression_for_those_who_may(db):
    suppression.add(["ada@example.com"], ME, "asked by telephone")
    found = f"{reverse('admin:find')}?q=ada@example.com"
    assert links(client_with("view_suppression").get(found, follow=True).content.decode(), "lift") == []
    paid("ada@example.com")  # its order is found, too: several hits have a page
    assert links(seen(with_role("Support"), found), "lift") == [
        lever_of(Suppression, "lift", Suppression.objects.get())
    ]


def test_letters_of_its_orders_are_offered_whatever_refused_them(boss, email):  # noqa: F811
    refused(email)
    closed = refused(email, "bob@example.com")
    suppression.add(["ada@example.com", "bob@example.com"], ME, "asked by telephone")
    DeadLetter.objects.filter(topic_id=str(closed.pk)).update(status="resolved")
    html = lifted(boss, "ada@example.com", "bob@example.com").content.decode()
    assert "Lifted 2 suppressions. 1 letter to them is open." in html
    assert len(links(html, "requeue")) == 1


def test_whoever_may_not_requeue_is_told_of_the_letters(email):  # noqa: F811
    refused(email)
    suppression.add(["ada@example.com"], ME, "asked by telephone")
    html = lifted(client_with("view_suppression", "lift_suppression"), "ada@example.com").content.decode()
    assert "1 letter to it is open." in html
    assert not links(html, "requeue")
