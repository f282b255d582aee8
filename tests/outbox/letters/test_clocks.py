"""Letters are replayed in the order in which they were buried, whatever the clocks of the hosts are that buried them."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import count

import pytest

from config.database.clock import database_now
from config.fields import EPOCH, uuid7, uuid7_milliseconds
from config.kafka import Replayed
from outbox.letters import burial
from outbox.letters.burial import Letter, bury
from outbox.letters.models import DeadLetter
from outbox.letters.verify import letters_are_in_order

pytestmark = pytest.mark.django_db
BOTH_WAYS = pytest.mark.parametrize("seconds", [(60, -60), (-60, 60), (3600, 0), (0, -2)], ids=str)


def letter(offset: int, source: str = "flow", key: str = "K", **more) -> Letter:
    record = Replayed("topic", 0, offset, 1000, b"k", b"{")
    return Letter(source, "decode", "bad", "it is bad", record, "t", business_key=key, **more)


def milliseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def in_order(source: str = "flow") -> list[int | None]:
    return list(DeadLetter.objects.of_source(source).order_by("pk").values_list("offset", flat=True))


@BOTH_WAYS
def test_they_stand_in_the_order_of_their_burial(clock, seconds):
    for offset, ahead in enumerate(seconds * 2):
        clock.ahead(seconds=ahead)
        bury([letter(offset)], "g", database_now())
    assert in_order() == [0, 1, 2, 3]
    for row in DeadLetter.objects.all():
        assert uuid7_milliseconds(row.pk) == milliseconds(row.created_at)
    assert letters_are_in_order().ok


def test_those_of_one_transaction_stand_in_the_order_of_their_places():
    """Whichever a handler has found first: what it cannot read it finds before it asks the database."""
    bury([letter(2), letter(0), letter(1, key="other")], "g", database_now())
    assert in_order() == [0, 1, 2]


def test_two_burials_of_one_moment_follow_each_other():
    now = database_now()
    bury([letter(offset) for offset in range(5)], "g", now)
    bury([letter(offset) for offset in range(5, 9)], "g", now)
    assert in_order() == list(range(9))


@pytest.mark.parametrize(("back", "order"), [
    (timedelta(seconds=2), [0, 1, 2]), (timedelta(hours=5), [0, 1, 2]), (timedelta(days=2), [1, 2, 0]),
])  # fmt: skip
def test_they_go_on_above_the_newest_when_the_databases_clock_goes_back(back, order):
    """But not above one that is more than a day ahead, which would lead into months that have no partition."""
    now = database_now()
    bury([letter(0)], "g", now)
    bury([letter(1), letter(2)], "g", now - back)
    bury([letter(9, "another")], "g", now - back)
    assert in_order() == order
    (other,) = DeadLetter.objects.of_source("another")
    assert uuid7_milliseconds(other.pk) == milliseconds(now - back)


def test_a_letter_that_only_its_bare_form_could_be_buried_of_has_that_ones_id(monkeypatch):
    written = burial._letter

    def fragile(letter: Letter, *rest):
        if letter.business_key:
            raise ValueError("A string literal cannot contain NUL (0x00) characters.")
        return written(letter, *rest)

    monkeypatch.setattr(burial, "_letter", fragile)
    refused = letter(7)
    assert bury([refused], "g", database_now()) == [refused]
    assert refused.id == DeadLetter.objects.get().pk


@BOTH_WAYS
def test_verify_finds_those_whose_ids_are_made_of_hosts_clocks(clock, monkeypatch, seconds):
    monkeypatch.setattr(burial, "uuid7s_from", lambda now, above: (uuid7() for _ in count()))
    for offset, ahead in enumerate(seconds):
        clock.ahead(seconds=ahead)
        bury([letter(offset), letter(offset, key=f"K{offset}", revision=1)], "g", database_now())
    wrong = seconds[0] > seconds[1]
    check = letters_are_in_order()
    assert check.ok is not wrong
    if wrong:
        ((key, found),) = check.rows
        assert (key, DeadLetter.objects.get(pk=found).offset) == ("K", 0)
    DeadLetter.objects.filter(business_key="K").update(status="resolved")
    assert letters_are_in_order().ok


def test_of_two_transactions_at_once_the_number_of_the_key_decides():
    """The first has read its time, and buries when the second has committed: its letter is the later one."""
    early = database_now()
    bury([letter(1)], "g", early + timedelta(seconds=1))
    bury([letter(0)], "g", early)
    assert in_order() == [1, 0]
    assert letters_are_in_order().ok
