"""One parser of senders: what the checks accept is what is sent, in the envelope and in the header."""

from __future__ import annotations

import smtplib
from datetime import UTC, datetime
from email import message_from_string
from email.header import decode_header, make_header
from email.utils import parseaddr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.environment.env import BadSetting
from config.environment.mail import sender_from_text
from config.environment.mailbox import Mailbox, sender
from notifications import account_mail
from notifications.channels.anymail import Anymail
from notifications.channels.smtp import Smtp
from notifications.mail.content import faults, identity, mime
from tests.notifications.mail.test_recipients import mail
from tests.notifications.provider import Provider

GOOD = [
    ("info@shop.example", "", "info@shop.example"),
    ("<info@Shop.Example>", "", "info@shop.example"),
    ("info@bücher.example", "", "info@xn--bcher-kva.example"),
    ("Shop <info@bücher.example>", "Shop", "info@xn--bcher-kva.example"),
    ("Bücher & Söhne <info@例え.テスト>", "Bücher & Söhne", "info@xn--r8jz45g.xn--zckzah"),
    ('"Müller, Söhne" <info@shop.example>', "Müller, Söhne", "info@shop.example"),
    ('"Shop <EU>" <info@shop.example>', "Shop <EU>", "info@shop.example"),
    ('"Shop \\"EU\\" \\\\" <info@shop.example>', 'Shop "EU" \\', "info@shop.example"),
    ("Shop (Berlin) <info@shop.example>", "Shop (Berlin)", "info@shop.example"),
    ("St. Mary's Shop <info@shop.example>", "St. Mary's Shop", "info@shop.example"),
    ('"info@shop.example" <info@shop.example>', "info@shop.example", "info@shop.example"),
    ("Ein Laden mit einem langen Namen " + "für " * 60 + "<info@shop.example>",
     ("Ein Laden mit einem langen Namen " + "für " * 60).strip(), "info@shop.example"),
    ('"" <info@shop.example>', "", "info@shop.example"),
]  # fmt: skip
BAD = [
    "Shop", "Shop <>", "<>", "info@shop.example (Shop <EU>)", "info@shop.example (Shop)", "<info@shop.example> Shop",
    "Shop <info@shop.example>, Eve <eve@shop.example>", "info@shop.example, eve@shop.example", "eve@shop.example <info@shop.example>",
    "Shop: info@shop.example;", "Shop: Eve <info@shop.example>", "Undisclosed:;", "info@@shop.example", "a@info@shop.example",
    "Shop <info@shop.example.>", "info@shop.example.", "Shop <<info@shop.example>>", "Shop, Ltd. <info@shop.example>",
    'Shop "EU" <info@shop.example>', '"Shop <info@shop.example>', "Shop\n<info@shop.example>", "Shop\x00 <info@shop.example>",
    "Shop\u202e <info@shop.example>", "jürgen@shop.example", "Shop <jürgen@shop.example>", '"a b"@shop.example',
    "=?utf-8?q?Shop?= <info@shop.example>", '"=\\?utf-8?q?Eve?=" <info@shop.example>', "Shop <info@straße.example>", "Shop <info@localhost>", "Shop <info@[127.0.0.1]>",
    "Shop <info@shop.example> ;", "Shop \\ <info@shop.example>", "@shop.example:info@shop.example",
]  # fmt: skip


def decoded(words: str) -> str:
    """The library's newer parser puts blanks between encoded words, before Python 3.12."""
    return str(make_header(decode_header(words)))


@pytest.mark.parametrize(("text", "name", "address"), GOOD)
def test_a_sender_leaves_as_its_check_read_it(tls_sink, settings, text, name, address):
    assert sender(text) == Mailbox(name, address)
    assert sender_from_text(text) == text
    assert Smtp().send(mail(sender=text), "key").kind == "sent"
    assert f"MAIL FROM:<{address}>" in tls_sink.commands
    (found,) = tls_sink.accepted
    words, bare = parseaddr(message_from_string(found["data"])["From"])
    assert (decoded(words), bare) == (name, address)
    settings.EMAIL_FROM = text
    assert identity("key", datetime(2026, 11, 28, tzinfo=UTC))["Message-ID"].endswith(f"@{address.partition('@')[2]}>")
    assert account_mail.send("ada@example.com", "s", "t") == ""


@pytest.mark.parametrize(("text", "name", "address"), GOOD)
def test_a_provider_gets_the_same_one(settings, text, name, address):
    with Provider() as provider:
        settings.EMAIL_ESP = "brevo"
        settings.ANYMAIL = {"BREVO_API_KEY": "k", "BREVO_API_URL": provider.url}
        channel = Anymail()
        assert channel.send(mail(sender=text), "key").kind == "sent"
        channel.close()
    asked = provider.requests[0]["body"]["sender"]
    assert (decoded(asked.get("name", "")), asked["email"]) == (name, address)


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_sender_is_refused_by_every_check_with_its_place(text):
    with pytest.raises(BadSetting, match=r"^EMAIL_FROM: [^\n]+$"):
        sender_from_text(text)
    payload = {"to": "a@b.cd", "from": text, "subject": "s", "text": "t", "html": "h", "headers": {}}
    (fault,) = faults(payload)
    assert fault.endswith(" - at `$.from`")
    with pytest.raises(ValueError, match="sender"):
        mail(sender=text)


@pytest.mark.parametrize("blank", ["", " "])
def test_a_blank_sender_is_left_out_of_a_mail_and_refused_as_a_setting(blank, settings):
    with pytest.raises(BadSetting, match=r"^EMAIL_FROM: [^\n]+$"):
        sender_from_text(blank)
    assert faults({"to": "a@b.cd", "from": blank, "subject": "s", "text": "t"}) == []
    assert mail(sender=blank).sender == settings.EMAIL_FROM


HOSTILE = st.lists(
    st.sampled_from(["Shop", "ü", "info@shop.example", *'<>(),:;@"\\ .=?', "\r\n", "bücher.example"]), max_size=12
)


@given(HOSTILE.map("".join))
def test_whatever_is_accepted_has_one_sender_on_the_wire(text):
    try:
        found = sender(text)
    except ValueError:
        return
    head = mime(mail(sender=text)).split(b"\r\n\r\n")[0]
    assert head.isascii()
    line = next(line for line in head.replace(b"\r\n ", b" ").split(b"\r\n") if line.startswith(b"From: ")).decode()
    assert line.endswith((f": {found.address}", f"<{found.address}>"))
    assert smtplib.quoteaddr(found.address) == f"<{found.address}>"
    assert sender(found.text) == found
