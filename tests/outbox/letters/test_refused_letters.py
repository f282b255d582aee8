"""Writing a letter must not fail: what the database does not take of its words is escaped, then left out."""

from __future__ import annotations

from contextlib import closing

import pytest
from django.db import DataError

from config.database.clock import database_now
from config.kafka import RecordBatch, Replayed
from config.kafka.consumer.writer import Writer
from config.letters import Refusal
from outbox.groups.models import FailureGroup
from outbox.letters import burial
from outbox.letters.burial import Letter, LetterHandler, bury
from outbox.letters.models import BurialKey, DeadLetter
from outbox.letters.redelivery import record_of
from outbox.letters.verify import every_letter_was_counted, letters_are_as_they_came
from tests.refusing import refusing
from throttler.engine.row_writer import NoPositions

pytestmark = pytest.mark.django_db(transaction=True)
VALUE = "東京".encode()


@pytest.fixture(autouse=True)
def _everything_adds_up(transactional_db):
    yield
    assert [check for check in [every_letter_was_counted(), *letters_are_as_they_came()] if not check.ok] == []


def letter(offset: int = 0, error: str = "from 1 … 2", **more) -> Letter:
    record = Replayed("t", 0, offset, 0, b"k", VALUE, [("h", "ü".encode())])
    return Letter("transfer-requests", "decode", "empty", error, record, "id", **{"business_key": "東京", **more})


def buried(*letters: Letter) -> list[DeadLetter]:
    written = bury(letters, "group", database_now())
    assert list(written) == list(letters)
    return list(DeadLetter.objects.order_by("offset"))


@pytest.mark.parametrize("column", ["error", "business_key"])
def test_where_the_database_lacks_a_character_the_words_of_a_letter_are_escaped(column):
    with refusing(DeadLetter, column, "…" if column == "error" else "東"):
        (found,) = buried(letter())
    assert (found.error, found.business_key) == ("from 1 \\u2026 2", "\\u6771\\u4eac")
    assert (bytes(found.payload), bytes(found.key), found.headers) == (VALUE, b"k", [["h", "\\xfc"]])
    assert record_of(found).value == VALUE


def test_its_group_is_escaped_too_and_stays_the_same_group():
    with refusing(FailureGroup, "title", "…"):
        buried(letter(0))
    assert FailureGroup.objects.get().title.isascii()
    bury([letter(1)], "group", database_now())
    assert FailureGroup.objects.get().total_count == 2


def test_one_that_is_refused_whatever_it_says_is_bare_and_spares_the_others(monkeypatch):
    make = burial._letter

    def picky(found, *rest):
        if found.record.offset == 1 and found.business_key:
            raise DataError("no")
        return make(found, *rest)

    monkeypatch.setattr(burial, "_letter", picky)
    first, bare, last = buried(letter(0), letter(1), letter(2))
    assert (first.error, last.business_key) == ("from 1 … 2", "東京")
    assert (bare.error, bare.business_key, bytes(bare.payload)) == ("from 1 \\u2026 2", "", VALUE)
    with pytest.raises(Refusal, match="replay the record from its topic"):
        record_of(bare)


def test_a_letter_that_is_known_changes_nothing_in_any_words():
    with refusing(DeadLetter, "error", "…"):
        buried(letter())
        assert bury([letter()], "group", database_now()) == []
    assert BurialKey.objects.count() == 1


def test_half_a_character_is_escaped():
    (found,) = buried(letter(error="half \ud83d of it", business_key="\udfff"))
    assert (found.error, found.business_key) == ("half \\ud83d of it", "\\udfff")


class Refusing(LetterHandler):
    """Refuses every record, in words that the database does not take."""

    name = source = group = "throttler"
    topics: list[str] = []

    def prepare(self, batch):
        return batch.records

    def write(self, batch, now):
        raise DataError("outside 1 … 2")


def test_a_writer_parks_what_was_refused_although_the_words_are_refused_too():
    """It is tried for as long as it takes, and would never end."""
    with refusing(DeadLetter, "error", "…"), closing(Writer(Refusing(), NoPositions(), "throttler")) as writer:
        record = Replayed("notifications-in", 0, 7, 0, b"k", b"{}")
        assert writer.submit(RecordBatch([record], {"notifications-in": "t"}), 1, timeout=10)
        assert writer.drain(30)
    assert DeadLetter.objects.get().error == "outside 1 \\u2026 2"
