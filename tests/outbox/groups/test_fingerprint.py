"""What letters of one cause have in common, in the words of the servers and of our own flows."""

import random
import string

import pytest

from notifications.channels import error_line
from notifications.channels.smtp import RefusedReply
from outbox.groups.fingerprint import LONGEST_READ, template_of, title_of
from tests.notifications.refusals import full, gmail, outlook, some


def letters_of(answer, number):
    """The error of each letter, as the channel writes it."""
    chance = random.Random(17)
    for index in range(number):
        text = answer(chance).replace(
            "that you tried", f"<user.{some(chance, string.ascii_lowercase, 6)}@example.com> that you tried"
        )
        yield error_line(RefusedReply("RCPT", 550, text if index % 2 else text.encode()))


@pytest.mark.parametrize("answer", [gmail, full, outlook])
def test_refusals_of_one_server_are_one_cause(answer):
    assert len({template_of(text) for text in letters_of(answer, 5000)}) == 1


def test_codes_tell_causes_apart():
    texts = [next(letters_of(answer, 1)) for answer in (gmail, full, outlook)]
    assert [template_of(text)[:15] for text in texts] == ["RCPT: 550 5.1.1", "RCPT: 550 5.2.2", "RCPT: 550 5.5.0"]
    assert template_of("422 no such field") != template_of("400 no such field")
    assert template_of("HTTP 503 from the shop") == "HTTP 503 from the shop"
    assert template_of("provider answers with status code 429") == "provider answers with status code 429"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("70000 bytes, at most 65536 are accepted", "80000 bytes, at most 65536 are accepted"),
        ("bad (byte 12)", "bad (byte 7)"),
        ("took 550 seconds", "took 4 seconds"),
        ("version 12.5.1.1 is too old", "version 7.5.1.2 is too old"),
        ("no such operation 'ab'", "no such operation 'cd ef'"),
        ('stock "ACME" is gone', 'stock "BOLT" is gone'),
        ("stock “A” or” is gone", "stock “BOLT” is gone"),
        ("a@example.com is full", "<address> is full"),
        ("see https://a.example/x?who=ada", "see https://a.example/x?who=bob#top"),
        ("at `$.items[3].quantity`", "at `$.items[14].quantity`"),
        ("host a1b.example", "host a1b.example c2d.example"),
        ("x " * LONGEST_READ + "tail", "x " * LONGEST_READ + "other"),
    ],
)
def test_what_differs_from_letter_to_letter_is_not_the_cause(one, other):
    assert template_of(one) == template_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Object missing required field `items`", "Object missing required field `order_id`"),
        ("it doesn't know and can't say", "it doesn't care and can't say"),
        ("Expected `int`, got `str`", "Expected `str`, got `int`"),
    ],
)
def test_what_says_the_cause_stays(one, other):
    assert template_of(one) != template_of(other)


def test_the_name_that_a_letter_is_about_is_taken_out():
    assert template_of("order ACME-BLUE is gone", "ACME-BLUE") == template_of("order BOLT is gone", "BOLT")
    assert template_of("order or is gone", "or") == "order or is gone"  # too short to be told from a word


def test_a_title_reads_like_its_example_and_says_nothing_of_one_letter():
    title = title_of("refused", template_of(next(letters_of(outlook, 1))))
    assert title == "Refused: RCPT: 550 5.5.0 Requested action not taken: mailbox unavailable …"
    assert title_of("wrong_field", "Missing `items`") == "Wrong field: Missing “items”"
    assert title_of("expired", "") == "Expired"
    assert "\x00" not in title_of("refused", "\x00")


@pytest.mark.parametrize(
    "text", ["x" * 10**6, "a@" * 10**5, "'" * 10**6, "5.1.1 " * 10**5, "“" * 10**5, "..… " * 10**5, "?" * 10**5]
)
def test_a_hostile_text_has_a_short_template(text):
    assert len(template_of(text)) <= 1000
