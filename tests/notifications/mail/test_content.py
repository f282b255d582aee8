"""What a mail says, and that it says the same on every try."""

import email
from email.policy import SMTP, default
from types import SimpleNamespace
from uuid import UUID

import msgspec
import pytest
from django.utils.timezone import datetime, timedelta, timezone

from notifications.email_handler import EmailHandler
from notifications.mail import content, headers
from notifications.mail.content import SUBJECTS, Mail, decode, mime, money, render
from notifications.mail.headers import POLICY
from notifications.orders.models import OrderEvent

WHEN = datetime(2026, 11, 20, 12, 0, tzinfo=timezone(timedelta(0)))


def order(**changes):
    values = {
        "pk": UUID("01930000-0000-7000-8000-0123456789ab"), "user_email": "ada@example.com", "total_amount": 123450,
        "currency": "EUR", "refunded_amount": 0, "version": 1, "updated_at": WHEN,
    }  # fmt: skip
    return SimpleNamespace(**{**values, **changes})


@pytest.mark.parametrize(
    ("minor", "currency", "text"),
    [
        (0, "EUR", "0.00 EUR"), (5, "EUR", "0.05 EUR"), (123456789, "USD", "1,234,567.89 USD"), (1500, "JPY", "1,500 JPY"),
        (1250, "KWD", "1.250 KWD"), (12345, "CLF", "1.2345 CLF"), (-199, "GBP", "-1.99 GBP"),
        (999_999_999_999, "EUR", "9,999,999,999.99 EUR"), (7, "ISK", "7 ISK"),
    ],
)  # fmt: skip
def test_money_has_as_many_digits_as_its_currency(minor, currency, text):
    assert money(minor, currency) == text


def test_there_is_a_mail_for_every_event():
    assert set(SUBJECTS) == set(OrderEvent.Kind.values)


@pytest.mark.parametrize("event", SUBJECTS)
def test_a_mail_says_what_happened_in_both_forms(event):
    mail = render(event, order(refunded_amount=23450), amount=450)
    assert mail.to == "ada@example.com"
    assert "456789AB" in mail.subject
    amount = {"order.paid": "1,234.50 EUR", "order.cancelled": "1,234.50 EUR"}.get(event, "4.50 EUR")
    assert amount in mail.text
    assert amount in mail.html
    if event == "order.part_refunded":
        assert "234.50 EUR" in mail.text
        assert "1,000.00 EUR" in mail.html
    assert "<" not in mail.text
    assert mail.event_type == event


def test_the_same_version_of_an_order_renders_the_same_bytes():
    first, again = (msgspec.json.encode(render("order.paid", order())) for _ in range(2))
    assert first == again
    assert mime(decode(first)) == mime(decode(again))
    assert mime(decode(first)) == mime(decode(first.decode()))


def test_another_event_is_another_mail():
    names = {
        render(event, order(version=version)).headers["Message-ID"]
        for event, version in [("order.paid", 1), ("order.part_refunded", 2), ("order.part_refunded", 3)]
    }
    assert len(names) == 3


def test_what_stands_in_the_payload_arrives():
    mail = render("order.paid", order())
    parsed = email.message_from_bytes(mime(decode(msgspec.json.encode(mail))), policy=default)
    assert parsed["Date"].datetime == WHEN
    assert parsed["Message-ID"] == mail.headers["Message-ID"]
    assert parsed.get_body(["plain"]).get_content().replace("\r\n", "\n") == mail.text
    assert parsed.get_body(["html"]).get_content().replace("\r\n", "\n") == mail.html
    assert all(len(line) <= 998 for line in mime(decode(msgspec.json.encode(mail))).split(b"\r\n"))


def test_a_header_kept_from_another_mail_is_the_same_on_the_wire(monkeypatch):
    senders = ["shop@example.com", "Bücher <shop@example.com>", '"Shop, ' + "x" * 90 + '" <shop@example.com>']
    mails = [
        Mail(
            to="ada@example.com", sender=sender, subject=f"{subject} {number}", text="Text\n", html="<p>Ümlaut</p>\n",
            headers={name: "Grüße " * number},
        )
        for number, sender in enumerate(senders)
        for subject in ("Paid", "Bezahlt: " + "ü" * 90)
        for name in ("X-Ref", "x-ref")
    ]  # fmt: skip
    kept = [mime(mail) for mail in mails * 2]
    monkeypatch.setattr(content, "POLICY", SMTP)
    monkeypatch.setattr(headers, "POLICY", SMTP)
    monkeypatch.setattr(headers, "_lines", headers._lines.__wrapped__)
    assert kept == [mime(mail) for mail in mails * 2]
    assert POLICY.header_factory("X-Ref", "1") is POLICY.header_factory("X-Ref", "1")


def test_what_a_customer_entered_is_text_in_html():
    mail = render("order.paid", order(currency="<b>"))
    assert "<b>" not in mail.html
    assert "&lt;b&gt;" in mail.html
    assert "<b>" in mail.text


def test_an_order_without_a_proper_address_renders_nothing():
    with pytest.raises(ValueError, match="one bare address"):
        render("order.paid", order(user_email="a@b.cd,e@f.gh"))


@pytest.mark.parametrize("text", ["[]", "{}", "nonsense", '{"to": 5}', '{"to": "a@b.cd"}'])
def test_what_is_no_mail_is_refused(text):
    with pytest.raises((ValueError, msgspec.MsgspecError)):
        decode(text)


# -- What is left out ----------------------------------------------------------------------------------------
WHOLE = {
    "to": "ada@example.com",
    "from": "b@example.com",
    "subject": "S",
    "text": "One & two.\n",
    "html": "<b>1</b>",
    "headers": {},
}
BLANK = [None, "", " \r\n\t"]


@pytest.mark.parametrize("blank", BLANK)
@pytest.mark.parametrize("name", ["from", "html", "headers", "order_id", "event_type", "cc"])
def test_an_optional_field_that_is_blank_counts_as_left_out(name, blank, settings):
    """As `publish` checks it, as the form for edits does, as a service's mail is completed, and as it is sent."""
    told, silent = {**WHOLE, name: blank}, {key: value for key, value in WHOLE.items() if key != name}
    EmailHandler().check(told)
    assert content.faults(told) == []
    assert mime(decode(msgspec.json.encode(told))) == mime(decode(msgspec.json.encode(silent)))
    assert content.complete(told, "k", WHEN) == content.complete(silent, "k", WHEN)


@pytest.mark.parametrize("blank", BLANK)
def test_a_header_that_is_blank_counts_as_left_out(blank):
    told = {**WHOLE, "headers": {"date": blank, "X-Mark": blank, "X-Other": "1"}}
    mail = decode(msgspec.json.encode(content.complete(told, "k", WHEN)))
    assert mail.headers.keys() == {"Date", "Message-ID", "X-Other"}
    assert decode(msgspec.json.encode(told)).headers == {"X-Other": "1"}


def test_no_part_of_a_mail_is_blank():
    plain = email.message_from_bytes(mime(decode(msgspec.json.encode({**WHOLE, "html": ""}))), policy=default)
    assert plain.get_body(["html"]).get_content().strip() == "<p>One &amp; two.</p>"
    alone = email.message_from_bytes(mime(decode(msgspec.json.encode({**WHOLE, "text": " \n"}))), policy=default)
    assert (alone.get_content_type(), alone.get_content().strip()) == ("text/html", "<b>1</b>")


@pytest.mark.parametrize("name", ["to", "subject", "text"])
@pytest.mark.parametrize("missing", [True, False])
def test_what_is_required_may_be_neither_left_out_nor_null(name, missing):
    bad = {key: value for key, value in WHOLE.items() if key != name} if missing else {**WHOLE, name: None}
    with pytest.raises(ValueError, match=f"`(\\$.)?{name}`"):
        decode(msgspec.json.encode(bad))
    assert len(content.faults(bad)) == 1
