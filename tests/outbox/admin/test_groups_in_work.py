"""Which groups a live batch works on, whatever it was asked about: a group, a source, a time, letters, all of them."""

from __future__ import annotations

import time

import pytest

from config.admin.levers import Operator
from config.database.clock import database_now
from outbox.admin.groups.filters import batches_of, groups_in_work
from outbox.letters.burial import bury
from outbox.letters.filters import Filter
from outbox.letters.models import DeadLetter
from outbox.models import FailureGroup
from outbox.replay_batches import requests
from outbox.replay_batches.models import ReplayBatch
from tests.config.admin.conftest import list_of, page_of, queries_of, seen
from tests.outbox.groups.test_arrivals import letter
from tests.outbox.replay_batches.conftest import scripted
from tests.outbox.replay_batches.scripted_flow import step

__all__ = ["scripted"]
pytestmark = pytest.mark.django_db(transaction=True)
ANNA = Operator("Anna")
OFFSETS = iter(range(10**6))


def arrive(source: str, error: str) -> FailureGroup:
    """A letter, and the group of its cause."""
    offset = next(OFFSETS)
    bury([letter(offset, source=source, error=error, business_key=f"K{offset}")], "g", database_now())
    return DeadLetter.objects.latest("pk").group


@pytest.fixture
def causes():
    return [arrive("swift", "no such field"), arrive("swift", "no such stock"), arrive("slow", "refused")]


def holding(verb: str = "requeue", **narrowed) -> ReplayBatch:
    """A batch in its hold, of the letters that this narrows it to."""
    batch = requests.draft(verb, Filter(**narrowed), ANNA)
    step(4)
    return requests.confirm(batch.pk, ANNA, "mended")


def worked_on(causes) -> list[str]:
    """The groups in work, and the same asked of each group."""
    found = groups_in_work()
    assert [bool(batches_of(group)) for group in causes] == [group.pk in found for group in causes]
    return [str(group) for group in causes if group.pk in found]


@pytest.mark.parametrize(
    ("narrowed", "expected"), [({"source": "swift"}, [0, 1]), ({"source": "slow"}, [2]), ({"all": True}, [0, 1, 2])]
)
def test_a_batch_by_source_or_all_works_on_each_group_that_it_reaches(causes, narrowed, expected):
    assert worked_on(causes) == []
    batch = holding(**narrowed)
    assert worked_on(causes) == [str(causes[at]) for at in expected]
    later = arrive("swift", "another cause")  # not pinned
    assert worked_on([*causes, later]) == [str(causes[at]) for at in expected]
    requests.cancel(batch.pk, ANNA)
    assert worked_on(causes) == []


def test_a_batch_of_one_group_of_chosen_letters_or_by_time_works_on_theirs(causes):
    batch = holding(group=causes[1].pk)
    assert worked_on(causes) == [str(causes[1])]
    requests.cancel(batch.pk, ANNA)
    chosen = DeadLetter.objects.get(group=causes[2])
    batch = holding(ids=(str(chosen.pk).upper(),))
    assert worked_on(causes) == [str(causes[2])]
    requests.cancel(batch.pk, ANNA)
    early = database_now()
    time.sleep(0.01)  # ids are ordered by milliseconds
    later = arrive("swift", "yet another cause")
    batch = holding(before=early.isoformat(), source="swift")
    assert worked_on([*causes, later]) == [str(causes[0]), str(causes[1])]
    requests.cancel(batch.pk, ANNA)
    holding(since=early.isoformat(), source="swift")
    assert worked_on([*causes, later]) == [str(later)]


def test_a_group_whose_letters_were_restored_is_not_worked_on(causes):
    DeadLetter.objects.filter(group=causes[0]).update(status="discarded")
    holding("restore", source="swift")
    assert worked_on(causes) == []


def test_list_and_page_say_resolving_and_ask_as_much_for_many_batches(boss, causes):
    holding(source="swift")

    resolving = f"{list_of(FailureGroup)}?state=resolving"
    assert seen(boss, resolving).count("Resolving</") >= 2
    few = len(queries_of(boss, resolving))
    for _ in range(5):
        holding(source="swift")
    assert len(queries_of(boss, resolving)) == few
    assert "Replay batch" in seen(boss, page_of(causes[0]))
    assert "works on it" not in seen(boss, page_of(causes[2]))
