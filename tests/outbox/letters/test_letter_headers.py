"""Headers of a letter: whatever a producer sent comes back in its order and byte for byte, and every database takes it."""

import pytest

from config.database.clock import database_now
from config.kafka import Replayed
from config.kafka.records import header_rows, headers_from_rows, shown_headers
from outbox.letters.burial import LONGEST_HEADERS, Letter, bury
from outbox.letters.models import DeadLetter
from outbox.letters.redelivery import record_of

HEADERS = [
    ("a", b"1"), ("a", b"2"), ("binary", b"\xff\x00\x01"), ("empty", b""), ("null", None), ("text", "é東京".encode()),
    ("a", b"1"), ("", b"nameless"), ("nul", b"a\x00b"), ("na\x00me", b"x"), ("na\x00me", None), ("long", b"7" * 20_000),
]  # fmt: skip


def buried(headers, revision=0) -> DeadLetter:
    record = Replayed("orders", 0, 0, 1000, b"k", b"v", headers)
    (letter,) = bury([Letter("orders", "decode", "bad", "bad", record, revision=revision)], "g", database_now())
    return DeadLetter.objects.get(pk=letter.id)


def test_what_is_stored_is_what_was_received():
    assert headers_from_rows(header_rows(HEADERS)) == HEADERS


@pytest.mark.django_db
def test_a_letter_gives_its_headers_back():
    assert record_of(buried(HEADERS)).headers == HEADERS


@pytest.mark.django_db
def test_a_letter_that_failed_again_has_them_still():
    again = buried(record_of(buried(HEADERS)).headers, revision=1)
    assert record_of(again).headers == HEADERS


def test_rows_of_before_are_read_as_text():
    assert headers_from_rows([["a", "1"], ["b", "\\xff"], ["c", ""]]) == [("a", b"1"), ("b", b"\\xff"), ("c", b"")]


def test_people_see_text():
    assert shown_headers(header_rows([("a", b"1"), ("b", b"\xff"), ("c", None)])) == [
        ("a", "1"),
        ("b", "\\xff"),
        ("c", ""),
    ]


@pytest.mark.django_db
def test_a_letter_whose_headers_are_not_whole_cannot_come_back():
    letter = buried([("a", b"1"), ("large", b"7" * LONGEST_HEADERS)])
    assert (headers_from_rows(letter.headers), letter.is_excerpt) == ([("a", b"1")], True)


def test_a_record_without_headers_has_none():
    assert header_rows(Replayed("t", 0, 0, 0, None, None).headers) == []
