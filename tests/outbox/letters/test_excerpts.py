"""A letter is written whatever the record holds: beyond a limit it keeps both ends, the length and a hash."""

import hashlib

import pytest
from django.db import OperationalError, connection, transaction

from config import checks
from config.admin.levers import Operator
from config.database.clock import database_now
from config.database.retry import Remedy, remedy_for
from config.kafka import Replayed
from config.kafka.records import headers_from_rows
from config.payload import END_BYTES, WHOLE_BYTES
from outbox.letters import levers
from outbox.letters.burial import LONGEST_ERROR, LONGEST_HEADERS, LONGEST_TRACEBACK, Letter, bury
from outbox.letters.models import DeadLetter
from outbox.letters.verify import letters_are_as_they_came

pytestmark = pytest.mark.django_db
SOURCE = "transfer-requests"


def buried(value=b"v", key=b"k", headers=(), **about) -> DeadLetter:
    record = Replayed(SOURCE, 0, 0, 1000, key, value, headers)
    bury([Letter(SOURCE, "decode", "too_large", about.pop("error", "bad"), record, **about)], "g", database_now())
    return DeadLetter.objects.get()


def refusal_of(letter: DeadLetter) -> str:
    result = levers.pull("requeue", [letter.pk], Operator("me"), "again")
    assert result.acted == 0
    assert DeadLetter.objects.get().status == "open"
    return result.refused[0][1]


def test_a_payload_is_whole_up_to_the_limit():
    value = b"'" * WHOLE_BYTES  # as a literal twice as long
    letter = buried(value)
    assert bytes(letter.payload) == value
    assert not letter.is_excerpt


def test_beyond_it_both_ends_are_kept_and_what_the_whole_was():
    value = b"1" + b"7" * 20_000_000 + b"2"
    letter = buried(value)
    assert bytes(letter.payload) == value[:END_BYTES] + value[-END_BYTES:]
    assert (letter.payload_size, letter.payload_sha256) == (len(value), hashlib.sha256(value).hexdigest())
    assert "of its 20000002 bytes only parts are kept" in refusal_of(letter)
    assert all(check.ok for check in letters_are_as_they_came())


@pytest.mark.parametrize(
    "more", [{"key": b"k" * 20_000_000}, {"headers": [(f"h{n}", b"x" * 9000) for n in range(2000)]}]
)
def test_keys_and_headers_have_a_limit_too(more):
    letter = buried(**more)
    assert len(letter.key) <= END_BYTES
    assert sum(len(value) for _, value in letter.headers) <= LONGEST_HEADERS
    assert letter.is_excerpt
    assert (bytes(letter.payload), letter.payload_size) == (b"v", 1)
    assert "only parts are kept" in refusal_of(letter)


def test_no_text_about_a_record_keeps_its_letter_from_being_written():
    letter = buried(
        headers=[("na\x00me", b"a\x00\xff")], error="e\x00" * LONGEST_ERROR, traceback="t\x00" * LONGEST_TRACEBACK
    )
    ((name, text, *exact),) = letter.headers
    assert (name, text, headers_from_rows(letter.headers)) == (
        "na\ufffdme",
        "a\ufffd\\xff",
        [("na\x00me", b"a\x00\xff")],
    )
    assert len(exact) == 2
    assert (len(letter.error), len(letter.traceback)) == (LONGEST_ERROR, LONGEST_TRACEBACK)


def test_a_page_says_that_parts_are_missing(admin_client):
    letter = buried(b"7" * 20_000_000)
    page = admin_client.get(f"/admin/outbox/deadletter/{letter.pk}/change/", follow=True).content.decode()
    assert "20,000,000 bytes, SHA-256" in page
    assert letter.payload_sha256 in page
    assert "Too large to be requeued." in page


@pytest.mark.skipif(connection.vendor != "mysql", reason="the others have no such limit")
def test_a_statement_that_the_server_finds_too_large_is_a_matter_of_data():
    most = checks._packet(connection)
    with (
        pytest.raises(OperationalError, match="max_allowed_packet") as caught,
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT LENGTH(%s)", ["7" * (most + 1000)])
    connection.close()
    assert remedy_for(caught.value) is Remedy.DATA


@pytest.mark.skipif(connection.vendor != "mysql", reason="the others have no such limit")
def test_a_server_that_takes_less_than_a_letter_needs_is_named(monkeypatch):
    monkeypatch.setattr(checks, "_packet", lambda _: 1_048_576)
    (found,) = checks.sessions_are_safe(None, databases=["default"])
    assert found.id == "spillway.E015"
    assert "1048576" in found.msg
