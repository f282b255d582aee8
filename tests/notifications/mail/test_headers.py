"""Headers that a mail brings arrive as they were given, or are refused when the mail is promised."""

from __future__ import annotations

import json
from email import message_from_bytes
from email.header import decode_header, make_header
from email.policy import compat32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from config.environment.mailbox import LONGEST_HEADER
from notifications.channels.anymail import Anymail
from notifications.channels.smtp import Smtp
from notifications.mail.content import faults, mime
from notifications.mail.headers import LONGEST_NAME
from tests.notifications.mail.test_recipients import mail
from tests.notifications.provider import Provider

TOKEN = "x" * 300
LONG = {
    "List-Unsubscribe": f"<https://shop.example/u?token={TOKEN}>, <mailto:u@shop.example?subject={TOKEN}>",
    "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
    "In-Reply-To": f"<{TOKEN}@shop.example>",
    "References": " ".join(f"<{letter * 120}@shop.example>" for letter in "abcdef"),
    "X-SMTPAPI": json.dumps({"category": TOKEN, "unique_args": {"order": "01a2"}}, separators=(",", ":")),
    "List-Id": f"<{TOKEN}.shop.example>",
    "Feedback-ID": f"a:b:{TOKEN}",
    "Auto-Submitted": "auto-generated",
    "DKIM-Signature": f"v=1; a=rsa-sha256; d=shop.example; h=from:to; b={TOKEN}",
    "Resent-From": f"{'r' * 60}@{'d' * 60}.shop.example",
    "X-Two-Blanks": f"a  b   {TOKEN}  c",
    "Archived-At": f"<https://shop.example/{'y' * (LONGEST_HEADER - 30)}>",
    "Z" * LONGEST_NAME: "z" * LONGEST_HEADER,
}


def as_given(data: str) -> dict[str, str]:
    """Headers of a mail as a program reads them that only unfolds lines."""
    head = data.partition("\r\n\r\n")[0].replace("\r\n ", " ")
    return dict(line.split(": ", 1) for line in head.split("\r\n"))


def test_by_smtp_they_arrive_as_given_in_lines_of_a_legal_length(tls_sink):
    assert Smtp().send(mail(headers=LONG), "key").kind == "sent"
    (kept,) = tls_sink.accepted
    found = as_given(kept["data"])
    assert {name: found[name] for name in LONG} == LONG
    assert "=?" not in kept["data"]
    assert max(map(len, kept["data"].split("\r\n"))) <= 998
    assert all(line.strip() for line in kept["data"].partition("\r\n\r\n")[0].split("\r\n"))


def test_by_a_provider_they_arrive_as_given(settings):
    with Provider() as provider:
        settings.EMAIL_ESP, settings.ANYMAIL = "resend", {"RESEND_API_KEY": "k", "RESEND_API_URL": provider.url}
        channel = Anymail()
        assert channel.send(mail(headers=LONG), "key").kind == "sent"
        channel.close()
    (asked,) = provider.requests
    assert {name: asked["body"]["headers"][name] for name in LONG} == LONG


def test_a_provider_that_takes_whole_mails_gets_them_as_given(settings):
    settings.EMAIL_ESP = "amazon_ses"
    raw = Anymail()._message(mail(headers=LONG), "key").message().as_bytes(linesep="\r\n")
    found = as_given(raw.decode())
    assert {name: found[name] for name in LONG} == LONG
    assert b"=?" not in raw


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"List-Unsubscribe": "<https://büch.example/u>"}, "List-Unsubscribe may only hold ASCII"),
        ({"In-Reply-To": "<ü@shop.example>"}, "In-Reply-To may only hold ASCII"),
        ({"X-SMTPAPI": '{"category": "Grüße"}'}, "X-SMTPAPI may only hold ASCII"),
        ({"x-msys-api": '["ü"]'}, "x-msys-api may only hold ASCII"),
        ({"List-Unsubscribe": "x" * (LONGEST_HEADER + 1)}, "longer than 900"),
        ({"N" * (LONGEST_NAME + 1): "x"}, "the name of a header is longer than"),
        ({"List-Id": "<a.b>", "list-id": "<c.d>"}, "two headers 'list-id'"),
        ({"Content-Transfer-Encoding": "base64"}, "may not bring a header"),
    ],
)
def test_what_cannot_be_written_as_given_is_refused_at_the_promise_with_its_place(headers, said):
    payload = {"to": "a@b.cd", "from": "a@b.cd", "subject": "s", "text": "t", "html": "h", "headers": headers}
    (fault,) = faults(payload)
    assert said in fault
    assert fault.endswith(" - at `$.headers`")
    with pytest.raises(ValueError, match="header|ASCII|longer"):
        mail(headers=headers)


def test_words_for_people_may_be_in_any_script():
    given_ = {"Organization": "Bücher & Söhne", "X-Campaign": "Frühling " * 20, "Comments": "例え"}
    parsed = message_from_bytes(mime(mail(headers=given_)), policy=compat32)
    assert {name: str(make_header(decode_header(parsed[name]))).strip() for name in given_} == {
        name: value.strip() for name, value in given_.items()
    }


@given(
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=LONGEST_HEADER).filter(
        lambda text: "=?" not in text
    )
)
@example("")
@example(" ")
@example("two at the end  ")
@example("  two at the beginning")
@example("x " * 200)
@example("x" + " " * 200 + "x")
def test_whatever_it_says_unfolds_to_what_was_given(value):
    head = mime(mail(headers={"X-Any": value})).decode().partition("\r\nTo: ")[0]
    assert as_given(head)["X-Any"] == value
    for line in head.split("\r\n"):
        assert len(line) <= 78 or " " not in line.removeprefix("X-Any:").strip()
