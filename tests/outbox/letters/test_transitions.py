"""An edge of a letter names the state that it leaves: whoever comes second changes nothing, and is told."""

from __future__ import annotations

import pytest
from django.db import transaction

from config.database.clock import database_now
from config.database.retry import Stale
from config.kafka import Replayed
from outbox.letters import transitions
from outbox.letters.burial import Letter, bury
from outbox.letters.models import DeadLetter
from outbox.letters.transitions import Move, Status
from outbox.models import FailureGroup

pytestmark = pytest.mark.django_db


@pytest.fixture
def letters() -> list[DeadLetter]:
    records = [Replayed("t", 0, n, 0, None, b"x") for n in range(3)]
    with transaction.atomic():
        bury([Letter("outbox", "decode", "x", "y", record) for record in records], "g", database_now())
    return list(DeadLetter.objects.order_by("offset"))


def move(letters: list[DeadLetter], new: str, old: str = Status.OPEN) -> int:
    with transaction.atomic():
        return transitions.move(letters, {letter.pk: Move(new, "said") for letter in letters}, old, database_now())


def states() -> list[str]:
    return list(DeadLetter.objects.order_by("offset").values_list("status", flat=True))


def counts() -> tuple[int, int]:
    group = FailureGroup.objects.get()
    return group.open_count, group.requeued_count


def test_one_letter_in_another_state_takes_all_of_it_back(letters):
    """Here nobody holds a lock: the UPDATE alone must see it."""
    DeadLetter.objects.filter(pk=letters[1].pk).update(status="discarded")
    with pytest.raises(Stale, match="1 of 3 letters were not open any more"):
        move(letters, Status.REQUEUED)
    assert states() == ["open", "discarded", "open"]
    assert counts() == (3, 0)


@pytest.mark.parametrize(
    ("old", "new", "after"),
    [
        (Status.OPEN, Status.REQUEUED, (0, 3)),
        (Status.OPEN, Status.RESOLVED, (0, 0)),
        (Status.OPEN, Status.FAILED_AGAIN, (0, 0)),
        (Status.OPEN, Status.DISCARDED, (0, 0)),
        (Status.REQUEUED, Status.RESOLVED, (0, 0)),
        (Status.REQUEUED, Status.FAILED_AGAIN, (0, 0)),
        (Status.REQUEUED, Status.DISCARDED, (0, 0)),
        (Status.DISCARDED, Status.OPEN, (3, 0)),
    ],
)
def test_each_edge_counts_its_group(letters, old, new, after):
    if old != Status.OPEN:
        move(letters, old)
    assert move(letters, new, old) == 3
    assert states() == [new] * 3
    assert counts() == after


def test_a_letter_that_its_flow_cannot_give_up_stays_open(letters):
    DeadLetter.objects.filter(pk=letters[1].pk).update(source="gone")
    given = list(DeadLetter.objects.order_by("offset"))
    with transaction.atomic():
        effects = transitions.discard(given, database_now())
    assert [effects[letter.pk].state for letter in given] == ["discarded", "refused", "discarded"]
    assert states() == ["discarded", "open", "discarded"]
