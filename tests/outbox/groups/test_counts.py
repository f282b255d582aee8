"""Counts and states of groups when letters leave and come back, also at the same moment as others arrive."""

import pytest
from django.db import connection, transaction
from django.db.models import Count

from config.database.clock import database_now
from outbox.groups.counts import Shift, shift, summed
from outbox.groups.models import FailureGroup, GroupHour
from outbox.letters.burial import bury
from tests.outbox.groups.test_arrivals import letter, word
from tests.outbox.race import race

State = FailureGroup.State
STATES = [State.NEW, State.OPEN, State.ACKNOWLEDGED, State.REGRESSED]


def made(number=1, **changes):
    bury([letter(offset) for offset in range(number)], "g", database_now())
    FailureGroup.objects.update(**changes)
    return FailureGroup.objects.get()


def after(group, **change):
    shift({group.pk: Shift(**change)}, database_now())
    group.refresh_from_db()
    return group.state


@pytest.mark.django_db
@pytest.mark.parametrize("state", STATES)
def test_the_last_letter_resolves(state):
    group = made(2, state=state)
    assert after(group, open=-1, closed=1) == state
    assert after(group, open=-1, closed=1) == State.RESOLVED
    assert (group.open_count, GroupHour.objects.get().closed) == (0, 2)


@pytest.mark.django_db
def test_a_letter_on_its_way_is_not_closed():
    group = made(1, state=State.OPEN)
    assert after(group, open=-1, requeued=1) == State.OPEN
    assert group.shown_state(database_now()) == "resolving"
    assert after(group, requeued=-1, closed=1) == State.RESOLVED


@pytest.mark.django_db
def test_an_open_letter_outlives_the_last_one_on_its_way():
    group = made(2, state=State.OPEN)
    assert after(group, open=-1, requeued=1) == State.OPEN
    assert after(group, requeued=-1, closed=1) == State.OPEN
    assert (group.open_count, group.requeued_count) == (1, 0)


@pytest.mark.django_db
@pytest.mark.parametrize(("owner", "state"), [("", "open"), ("Ada", "acknowledged")])
def test_a_letter_that_is_restored_opens_its_group_as_it_was(owner, state):
    group = made(1, state=State.OPEN, owner_name=owner)
    assert after(group, open=-1, closed=1) == State.RESOLVED
    assert after(group, open=1, closed=-1) == state


@pytest.mark.django_db
def test_what_is_ignored_stays_so_without_letters():
    assert after(made(1, state=State.IGNORED), open=-1) == State.IGNORED


def test_changes_of_many_letters_are_summed():
    one = Shift(open=-1, requeued=1)
    assert summed([(7, one), (8, Shift(closed=1)), (7, one)]) == {7: Shift(-2, 2, 0), 8: Shift(0, 0, 1)}
    assert summed([]) == {}


def arrives(*letters):
    """A worker that buries them in a transaction of its own."""

    def act():
        with transaction.atomic():
            bury(letters, "g", database_now())

    return act


def of_servers(test):
    return pytest.mark.skipif(connection.vendor == "sqlite", reason="one writer at a time")(
        pytest.mark.django_db(transaction=True)(test)
    )


@of_servers
@pytest.mark.parametrize("turn", range(3))
def test_the_last_letter_leaves_while_the_next_one_arrives(turn):
    """Either way round the group has one open letter, and is not resolved: regressed, or never resolved at all."""
    group = made(1, state=State.ACKNOWLEDGED, owner_name="Ada")

    def leaves():
        with transaction.atomic():
            shift({group.pk: Shift(open=-1, closed=1)}, database_now())

    race(leaves, arrives(letter(100 + turn)))
    group.refresh_from_db()
    assert group.open_count == 1
    assert group.state in (State.REGRESSED, State.ACKNOWLEDGED)


@of_servers
def test_a_resolved_group_is_regressed_once_by_letters_that_come_together():
    group = made(1, state=State.RESOLVED, open_count=0)
    race(*(arrives(letter(number)) for number in range(10, 14)))
    group.refresh_from_db()
    assert (group.state, group.open_count, group.total_count) == (State.REGRESSED, 4, 5)


@of_servers
def test_workers_together_make_no_more_groups_than_one_alone(monkeypatch):
    monkeypatch.setattr("outbox.groups.counts.MOST_NEW", 10)
    starts = (0, 100, 200, 300)
    race(*(arrives(*(letter(start + number, word(start + number)) for number in range(6))) for start in starts))
    groups = dict(FailureGroup.objects.values_list("reason").annotate(n=Count("pk")))
    assert groups == {"invalid_json": 10, "other": 1}
    assert FailureGroup.objects.get(reason="other").open_count == 14
