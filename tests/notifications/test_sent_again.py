"""A mail that is sent again is a new mail to every mailbox; a retry of one is the same mail."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from django.db import transaction

from config.admin.levers import Operator
from config.database.clock import database_now
from notifications.mail.content import renewed
from outbox.delivery.levers import resend, resend_these
from outbox.letters import levers
from outbox.letters.edits import requeue_copy, text_of
from outbox.letters.models import DeadLetter
from outbox.models import OutboxMessage
from tests.notifications.post import go, paid
from tests.notifications.tls_mail import received

pytestmark = pytest.mark.django_db(transaction=True)
ANNA = Operator("Anna")
MONDAY = "Mon, 02 Nov 2026 09:00:00 +0000"


def of_monday(message: OutboxMessage, **headers: str) -> OutboxMessage:
    """As if it had been promised weeks ago."""
    mail = msgspec.json.decode(message.payload)
    mail["headers"] = {**mail["headers"], "Date": MONDAY, **headers}
    OutboxMessage.objects.filter(pk=message.pk).update(payload=msgspec.json.encode(mail).decode())
    message.refresh_from_db()
    return message


def assert_a_mail_of_its_own(first, again) -> None:
    assert first["Message-ID"] != again["Message-ID"]
    assert first["Date"] == MONDAY
    assert abs(again["Date"].datetime - database_now()) < timedelta(minutes=5)
    assert again.get_all("Message-ID") == [again["Message-ID"]]
    assert again.get_all("Date") == [again["Date"]]
    assert again["Subject"] == first["Subject"]
    assert again.get_body(["plain"]).get_content() == first.get_body(["plain"]).get_content()


@pytest.mark.parametrize("address", ["", "eve@example.com"])
def test_what_a_person_sends_again_is_a_new_mail_to_the_same_and_to_another_address(mails, tls_sink, address):
    message = of_monday(paid())
    assert go(mails) == 1
    resend(message.pk, ANNA, "it never came", address)
    assert go(mails) == 1
    resend(message.pk, ANNA, "nor did that", address)
    assert go(mails) == 1
    first, again, third = received(tls_sink)
    assert_a_mail_of_its_own(first, again)
    assert_a_mail_of_its_own(first, third)
    assert again["Message-ID"] != third["Message-ID"]
    assert again["To"] == (address or first["To"])


def test_what_a_batch_sends_again_are_new_mails(mails, tls_sink):
    for number in range(3):
        of_monday(paid(f"ada.{number}@example.com"))
    assert go(mails) == 3
    with transaction.atomic():
        resend_these(list(OutboxMessage.objects.filter(state="sent")), 1, database_now())
    assert go(mails) == 3
    sent = {
        to: [mail for mail in received(tls_sink) if mail["To"] == to]
        for to in (f"ada.{at}@example.com" for at in range(3))
    }
    for first, again in sent.values():
        assert_a_mail_of_its_own(first, again)
    assert len(tls_sink.counts()) == 6


def test_a_message_made_of_an_edited_letter_is_a_new_mail(mails, tls_sink):
    message = of_monday(paid())
    tls_sink.script.append("dot:554")
    assert go(mails) == 0
    letter = DeadLetter.objects.get()
    requeue_copy(letter.pk, text_of(letter).replace("ada@", "eve@"), 0, ANNA, "the customer called")
    assert go(mails) == 1
    (again,) = received(tls_sink)
    assert again["Message-ID"] != msgspec.json.decode(message.payload)["headers"]["Message-ID"]
    assert abs(again["Date"].datetime - database_now()) < timedelta(minutes=5)


def test_a_message_made_of_a_letter_whose_day_was_dropped_is_a_new_mail(mails, tls_sink):
    message = of_monday(paid())
    tls_sink.script.append("dot:554")
    assert go(mails) == 0
    letter = DeadLetter.objects.get()
    OutboxMessage.objects.all().delete()
    assert levers.pull("requeue", [letter.pk], ANNA, "try").acted == 1
    assert go(mails) == 1
    (again,) = received(tls_sink)
    assert again["Message-ID"] != msgspec.json.decode(message.payload)["headers"]["Message-ID"]
    assert again["Date"] != MONDAY


@pytest.mark.parametrize("trouble", ["rcpt:450", "dot:451", "dot:lose", "dot:drop"])
def test_a_retry_of_the_same_message_keeps_both(mails, tls_sink, trouble):
    message = of_monday(paid())
    tls_sink.script.append(trouble)
    assert go(mails) == 0
    OutboxMessage.objects.update(state="pending", available_at=message.created_at)
    assert go(mails) == 1
    sent = received(tls_sink)
    assert {mail["Message-ID"] for mail in sent} == {msgspec.json.decode(message.payload)["headers"]["Message-ID"]}
    assert {mail["Date"] for mail in sent} == {MONDAY}


def test_names_in_any_case_are_replaced_and_the_other_headers_stay():
    headers = {"MESSAGE-ID": "<a@b.cd>", "date": MONDAY, "message-id": "<c@d.ef>", "References": "<a@b.cd>"}
    again = renewed({"to": "ada@example.com", "headers": headers}, "key", database_now())
    assert sorted(again["headers"]) == ["Date", "Message-ID", "References"]
    assert again["headers"]["References"] == "<a@b.cd>"
    assert renewed([1], "key", database_now()) == [1]
    assert renewed({"headers": 5}, "key", database_now()) == {"headers": 5}
