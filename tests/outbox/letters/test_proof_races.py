"""Two at the same letters, on connections of their own: the letter's own guarded UPDATE decides who was first."""

from __future__ import annotations

import pytest
from django.db import transaction

from config.admin.levers import Operator
from config.database.clock import database_now
from outbox.letters import levers, redelivery
from outbox.letters.models import DeadLetter
from outbox.models import FailureGroup, OperatorAction, OutboxMessage
from outbox.verify import checks
from tests.outbox.race import race
from tests.outbox.scripted import PERMANENT, promise

pytestmark = pytest.mark.django_db(transaction=True)
ANN, BOB = Operator("ann"), Operator("bob")
MANY = 40


@pytest.fixture(autouse=True)
def _everything_adds_up(transactional_db):
    yield
    assert [check for check in checks() if not check.ok] == []


@pytest.fixture
def letters(memory, go) -> list[DeadLetter]:
    """Of messages that their channel refused."""
    with transaction.atomic():
        for n in range(MANY):
            promise(f"order:{n}")
    memory.always = PERMANENT
    go(memory)
    memory.always = None
    return list(DeadLetter.objects.order_by("pk"))


def take_back(chosen: list[DeadLetter]) -> dict:
    with transaction.atomic():
        return redelivery.take_back(chosen, database_now())


def counts() -> tuple[int, int]:
    groups = FailureGroup.objects.values_list("open_count", "requeued_count")
    return tuple(map(sum, zip(*groups, strict=True)))


def revived() -> set[int]:
    return set(OutboxMessage.objects.values_list("times_revived", flat=True))


def test_two_buttons_on_one_letter_are_one_deed(letters):
    first = letters[0].pk
    found = race(*[lambda who=who: levers.pull("requeue", [first], who, "go").acted for who in (ANN, BOB)])
    assert sorted(found) == [0, 1]
    assert (OutboxMessage.objects.filter(times_revived=1).count(), counts()) == (1, (MANY - 1, 1))
    assert OperatorAction.objects.count() == 1


def test_requeue_and_discard_at_once_leave_one_of_the_two(letters):
    chosen = [letter.pk for letter in letters]
    requeued, discarded = race(
        lambda: levers.pull("requeue", chosen, ANN, "go").acted,
        lambda: levers.pull("discard", chosen, BOB, "nobody wants it").acted,
    )
    assert requeued + discarded == MANY
    assert OutboxMessage.objects.filter(state="pending").count() == requeued
    assert DeadLetter.objects.filter(status="requeued").count() == requeued
    assert counts() == (0, requeued)


def test_two_chunks_over_one_set_take_each_letter_once(letters):
    """In opposite orders: the letters are locked by rising id, whatever order they come in."""
    found = race(lambda: take_back(letters), lambda: take_back(letters[::-1]), lambda: take_back(letters[10:30]))
    assert sorted(len(part) for part in found) == [0, 0, MANY] or sum(map(len, found)) == MANY
    assert revived() == {1}
    assert counts() == (0, MANY)


def test_two_rounds_close_each_letter_once(letters, memory, go):
    take_back(letters)
    go(memory)
    found = race(*[lambda: redelivery.look_after(database_now(), limit=7)] * 3)
    assert sum(found) == MANY
    assert counts() == (0, 0)
    assert set(DeadLetter.objects.values_list("status", flat=True)) == {"resolved"}


def test_a_round_meets_a_letter_that_is_taken_back_just_now(letters, memory, go):
    take_back(letters[:20])
    go(memory)
    race(lambda: redelivery.look_after(database_now()), lambda: take_back(letters[20:]))
    go(memory)
    redelivery.look_after(database_now())
    assert set(DeadLetter.objects.values_list("status", flat=True)) == {"resolved"}
    assert counts() == (0, 0)


def test_two_restores_open_each_letter_once(letters):
    chosen = [letter.pk for letter in letters]
    levers.pull("discard", chosen, ANN, "nobody wants them")
    found = race(*[lambda who=who: levers.pull("restore", chosen, who, "they do").acted for who in (ANN, BOB)])
    assert sum(found) == MANY
    assert counts() == (MANY, 0)
