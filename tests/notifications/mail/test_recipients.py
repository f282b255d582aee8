"""Exactly one recipient, and no header that is two."""

import email
import smtplib
import sys
import unicodedata
from email.utils import getaddresses

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from config.environment.mailbox import check, has_control, header
from notifications.mail.content import Mail, mime

HOSTILE = st.lists(
    st.one_of(
        st.sampled_from(["=?utf-8?q?", "?=", "=0d=0a", "=40"]),
        st.sampled_from("ab.@,;:<>()[]\"'\\\r\n\t \x00\x0b\x85\u2028\u202e\ufeff%+-_éß例"),
        st.characters(),
    ),
    max_size=60,
).map("".join)


@pytest.mark.parametrize(
    ("given_", "normal"),
    [
        ("ada@example.com", "ada@example.com"),
        (" Ada.Lovelace+orders@Example.COM ", "Ada.Lovelace+orders@example.com"),
        ("ada@münchen.example", "ada@xn--mnchen-3ya.example"),
        ("ada@例え.テスト", "ada@xn--r8jz45g.xn--zckzah"),
        ("o'hara@sub.example.co.uk", "o'hara@sub.example.co.uk"),
    ],
)
def test_an_address_gets_its_normal_form(given_, normal):
    assert check(given_) == normal
    assert check(normal) == normal


@pytest.mark.parametrize(
    "address",
    [
        "", " ", "ada", "ada@", "@example.com", "ada@localhost", "ada@127.0.0.1", "ada@[127.0.0.1]", "a b@example.com",
        "ada@example.com,eve@example.com", "ada@example.com;eve@example.com", "Ada <ada@example.com>",
        "ada@example.com\r\nBcc: eve@example.com", "ada@example.com\n", "ada\x00@example.com", "ada@exam\u202eple.com",
        '"ada@x"@example.com', "ada@@example.com", ".ada@example.com", "a..b@example.com", "ada@-x.com", "ada@x-.com",
        "ada@x..com", "ada@straße.de", "adá@example.com", "a" * 65 + "@example.com", "a@" + "b" * 64 + ".com",
        "a@" + ".".join(["b" * 60] * 5) + ".com", "ada(comment)@example.com", "ada@example.com(x)", "ada\\@x@example.com",
    ],
)  # fmt: skip
def test_what_is_not_one_plain_address_is_refused_in_one_line(address):
    with pytest.raises(ValueError, match=r"^[^\n]+$") as refusal:
        check(address)
    assert len(address) < 6 or address not in str(refusal.value)


def test_what_is_no_text_is_refused():
    with pytest.raises(ValueError, match="no address"):
        check(None)


@pytest.mark.parametrize("address", ["=?utf-8?q?eve?=@b.cc", "=?utf-8?q?eve=40c.dd=0d=0aBcc:x?=@b.cc"])
def test_an_encoded_word_is_no_address_and_no_header(address):
    """A mail program decodes it: the recipient on the page and the one in the mail were two."""
    with pytest.raises(ValueError, match="encoded word"):
        check(address)
    with pytest.raises(ValueError, match="encoded word"):
        header(f"Hello {address}")


@settings(deadline=None, max_examples=500)
@given(HOSTILE)
@example("a@b.cd\u2028Bcc:e@f.gh")
def test_whatever_passes_is_one_recipient_on_the_wire(text):
    try:
        address = check(text)
    except ValueError:
        return
    assert address.isascii()
    assert address.isprintable()
    assert getaddresses([address]) == [("", address)]
    assert smtplib.quoteaddr(address) == f"<{address}>"
    parsed = email.message_from_bytes(mime(mail(to=address)))
    assert parsed.get_all("To") == [address]
    assert parsed.get_all("Bcc") is None


@settings(deadline=None, max_examples=500)
@given(HOSTILE, HOSTILE)
@example("x\r\nBcc: eve@example.com", "x")
@example("x\x85Bcc: eve@example.com", "x")
def test_no_header_becomes_another_one(subject, value):
    try:
        written = mail(subject=subject, headers={"X-Ref": value, "Message-ID": "<1@x.yz>"})
    except ValueError:
        return
    parsed = email.message_from_bytes(mime(written))
    assert sorted(parsed.keys()) == sorted(
        ["X-Ref", "Message-ID", "From", "To", "Subject", "MIME-Version", "Content-Type"]
    )


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("sender", "Shop <shop>", "there is no @ in it"),
        ("sender", "=?utf-8?q?Eve?= <shop@example.com>", "encoded word"), ("sender", "Shop\x85 <shop@example.com>", "control"),
        ("subject", "=?utf-8?q?Eve?=", "encoded word"), ("headers", {"X-Ref": "=?utf-8?q?Eve?="}, "encoded word"),
        ("to", "Ada@EXAMPLE.com", "normal form"), ("to", "ada@example.com,eve@example.com", "one bare address"),
    ],
)  # fmt: skip
def test_a_payload_with_what_another_program_could_read_in_two_ways_is_no_mail(field, value, says):
    with pytest.raises(ValueError, match=says):
        mail(**{field: value})


@pytest.mark.parametrize("name", ["Bcc", "to", "Content-Type", "X Ref", "X:Ref", "X-Ref\r\nBcc", "", "Ünder"])
def test_a_payload_cannot_bring_headers_that_decide_where_it_goes(name):
    with pytest.raises(ValueError, match="header"):
        mail(headers={name: "eve@example.com"})


@pytest.mark.parametrize("category", ["Cc", "Cf", "Cs", "Zl", "Zp"])
def test_no_control_character_of_any_kind_counts_as_printable(category):
    found = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) == category]
    assert found
    assert all(has_control(f"x{char}x") for char in found)
    assert not has_control("Ünïcode 例え €\u00a0\U0010fffd")


def test_a_header_has_an_end():
    with pytest.raises(ValueError, match="longer than"):
        header("x" * 901)


def mail(**changes) -> Mail:
    values = {"to": "ada@example.com", "sender": "Shop <shop@example.com>", "subject": "Hello", "text": "t", "html": "<p>t</p>",
              "headers": {}, **changes}  # fmt: skip
    return Mail(**values)
