"""Levers on letters: each acts once, and says in one line what the database says about a letter."""

from __future__ import annotations

import pytest
from django.db import DataError, IntegrityError, OperationalError

from config.admin.levers import Operator
from config.letters import Refusal
from outbox.delivery.message_letters import MessageLetters
from outbox.letters import levers
from outbox.letters.levers import pull
from outbox.models import DeadLetter, FailureGroup
from tests.outbox.scripted import PERMANENT, promise

pytestmark = pytest.mark.django_db
ME = Operator("me")


@pytest.fixture
def letter(memory, go) -> DeadLetter:
    """One that is open."""
    promise()
    memory.answers = [PERMANENT]
    go(memory)
    return DeadLetter.objects.get()


@pytest.fixture
def fail(monkeypatch):
    def with_(error: Exception) -> None:
        def take_back(*_):
            raise error

        monkeypatch.setattr(MessageLetters, "take_back", take_back)

    return with_


@pytest.mark.parametrize("error", [DataError, IntegrityError])
@pytest.mark.parametrize("length", [10, 200, 5000])
def test_what_the_database_refuses_is_said_in_a_short_line(letter, fail, error, length):
    fail(error("x" * length + "\nDETAIL: (ada@example.com)"))
    ((refused, why),) = pull("requeue", [letter.pk], ME, "try").refused
    assert (refused, refused.status) == (letter, "open")
    assert why == "the database still refuses it: " + "x" * min(length, 200)


def test_a_database_that_is_away_refuses_nothing(letter, fail):
    """The caller tries again later, or says that it is away: the letter has nothing to do with it."""
    fail(OperationalError("the connection is closed"))
    with pytest.raises(OperationalError):
        pull("requeue", [letter.pk], ME, "try")
    assert DeadLetter.objects.open().count() == 1


def test_a_group_with_more_letters_than_a_request_may_carry_is_left_to_a_batch(memory, go, monkeypatch):
    for number in range(3):
        promise(f"order:{number}")
    memory.answers = [PERMANENT] * 3
    go(memory)
    (group,) = FailureGroup.objects.values_list("pk", flat=True)
    monkeypatch.setattr(levers, "MOST", 2)
    with pytest.raises(Refusal, match="it has more than 2 open letters: resolve them by a replay batch"):
        levers.resolve_groups([group], ME, "all the same")
    assert DeadLetter.objects.open().count() == 3
    monkeypatch.setattr(levers, "MOST", 3)
    assert levers.resolve_groups([group], ME, "all the same") == 1
    assert not DeadLetter.objects.open().exists()
