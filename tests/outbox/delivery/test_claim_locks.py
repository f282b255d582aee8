"""What a claim, the poller beside it and expiry lock: nothing that another claim might want."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from config.database.clock import database_now
from outbox.channels import permits
from outbox.delivery import overdue
from outbox.delivery.candidates import lock_among, lock_due, lower_bound
from outbox.delivery.claim import claim
from outbox.models import OutboxMessage
from tests.outbox.race import race
from tests.outbox.scripted import Scripted, message, promise

pytestmark = pytest.mark.django_db(transaction=True)


def fill(number: int) -> list:
    with transaction.atomic():
        return [promise(f"order:{n}") for n in range(number)]


@pytest.fixture
def side_by_side():
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time")


def test_expiring_what_is_late_leaves_the_rest_to_claims(install, side_by_side):
    memory = install(Scripted())
    permits.ensure(["memory"])
    pks = fill(30)
    OutboxMessage.objects.filter(pk=pks[7]).update(expires_at=database_now())
    with transaction.atomic():
        assert overdue.expire_due("memory") == 1
        (found,) = race(lambda: claim(memory, "cdc", 100, ids=pks))
    assert {m.id for m in found.messages} == {*pks} - {pks[7]}


def test_what_is_left_to_cdc_is_not_locked_by_the_poller(install, side_by_side):
    memory = install(Scripted())
    permits.ensure(["memory"])
    pks = fill(30)
    OutboxMessage.objects.filter(pk=pks[7]).update(created_at=database_now() - timedelta(minutes=2))
    with transaction.atomic():
        assert [m.id for m in claim(memory, "poll", 100, older_than=timedelta(minutes=1)).messages] == [pks[7]]
        (found,) = race(lambda: claim(memory, "cdc", 100, ids=pks))
    assert {m.id for m in found.messages} == {*pks} - {pks[7]}


def test_a_claim_of_hints_locks_these_messages_and_no_others(install, side_by_side):
    memory = install(Scripted())
    permits.ensure(["memory"])
    pks = fill(60)
    with transaction.atomic():
        assert len(claim(memory, "cdc", 100, ids=pks[::3]).messages) == 20
        others = race(*[lambda n=n: claim(memory, "cdc", 100, ids=pks[n::3]) for n in (1, 2)])
    assert [len(found.messages) for found in others] == [20, 20]


@pytest.mark.parametrize("path", ["poll", "cdc"])
def test_of_two_that_look_at_once_none_sees_what_the_other_has(install, side_by_side, path):
    install(Scripted())
    pks, now, lowest = fill(20), database_now(), lower_bound.read()

    @transaction.atomic
    def look():
        if path == "poll":
            return lock_due("memory", now, lowest, 10)
        return lock_among(pks, "memory", now, lowest, 10)

    with transaction.atomic():
        mine = look()
        (theirs,) = race(look)
    assert len(mine) == 10
    assert not {one.id for one in mine} & {one.id for one in theirs}


def test_what_another_worker_has_leased_meanwhile_is_not_leased_again(install, monkeypatch):
    """A lock forbids it; without one the whole claim is taken back."""
    memory = install(Scripted())
    pks = fill(2)
    with transaction.atomic():
        stale = lock_due("memory", database_now(), lower_bound.read(), 10)
    first = claim(memory, "cdc", 10, ids=pks[:1])
    monkeypatch.setattr("outbox.delivery.claim.lock_due", lambda *_: stale)
    with pytest.raises(RuntimeError, match="claimed 1 of 2 locked messages"):
        claim(memory, "poll", 10)
    assert message(pks[0]).lease_token == first.token
    assert (message(pks[1]).state, message(pks[1]).attempts) == ("pending", 0)


def test_a_poller_that_leaves_young_messages_takes_the_old_ones(install):
    memory = install(Scripted())
    old, young = fill(2)
    OutboxMessage.objects.filter(pk=old).update(created_at=database_now() - timedelta(seconds=10))
    assert [m.id for m in claim(memory, "poll", 10, older_than=timedelta(seconds=5)).messages] == [old]
    assert message(young).state == "pending"
