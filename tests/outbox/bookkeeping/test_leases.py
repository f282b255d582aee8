"""Leases: what somebody holds is not leased again before his time is over."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

import pytest
from django.db import OperationalError, connection

from config.database.clock import database_now
from outbox.bookkeeping.leases import only_one, recover
from outbox.models import JobLease, OutboxMessage, ReplayBatch
from tests.outbox.scripted import message, promise

pytestmark = pytest.mark.django_db


def test_what_is_leased_is_leased_again_only_when_the_lease_is_over(memory):
    held, free = promise("order:1"), promise("order:2")
    first, second = uuid.uuid4(), uuid.uuid4()
    now, minute = database_now(), timedelta(minutes=1)
    assert OutboxMessage.objects.lease([held], first, now + minute, now) == 1
    assert OutboxMessage.objects.lease([held, free], second, now + minute, now) == 1
    assert (message(held).lease_token, message(free).lease_token) == (first, second)
    assert OutboxMessage.objects.lease([held], second, now + 2 * minute, now + minute) == 1


def test_recovery_gives_back_what_a_dead_worker_held_and_no_lease_that_runs():
    now, minute = database_now(), timedelta(minutes=1)
    dead, alive = (
        ReplayBatch.objects.create(
            verb="requeue", requested_by="me", created_at=now, lease_token=uuid.uuid4(), lease_until=until
        )
        for until in (now - minute, now + minute)
    )
    assert recover(ReplayBatch, now) == 1
    dead.refresh_from_db()
    assert (dead.lease_token, dead.lease_until) == (None, None)
    assert ReplayBatch.objects.get(pk=alive.pk).lease_token == alive.lease_token


def test_a_job_has_one_holder_and_a_dead_one_does_not_keep_it_for_ever():
    """That two beats are one: `tests/outbox/test_tasks.py`."""
    JobLease.objects.create(job="job", token=uuid.uuid4(), until=database_now() - timedelta(seconds=1))
    with only_one("job", 60) as first, only_one("job", 60) as second:
        assert (first, second) == (True, False)


@pytest.mark.django_db(transaction=True)
def test_an_answer_that_is_lost_keeps_no_job_away():
    """Neither when the lease is taken nor when it is given back: the job runs now, and again at once."""
    JobLease.objects.create(job="job", until=database_now())
    for statement in ("the lease", "its return"):
        with ExitStack() as stack:
            if statement == "the lease":
                stack.enter_context(answer_lost())
            with only_one("job", 3600) as mine:
                assert mine, statement
                if statement == "its return":
                    stack.enter_context(answer_lost())
    with only_one("job", 3600) as mine:
        assert mine


def test_who_comes_back_late_gives_back_no_lease_of_another():
    """Its time was over, and another has the job in hand: a third does not get it."""
    another, until = uuid.uuid4(), database_now() + timedelta(hours=1)
    with only_one("job", 60) as mine:
        assert mine
        JobLease.objects.update(token=another, until=until)
    lease = JobLease.objects.get()
    assert (lease.token, lease.until) == (another, until)
    with only_one("job", 60) as third:
        assert not third


@contextmanager
def answer_lost() -> Iterator[None]:
    """The next UPDATE is done, and nobody hears it."""
    lost = []

    def cut(execute, sql, params, many, context):
        result = execute(sql, params, many, context)
        if sql.startswith("UPDATE") and not lost:
            lost.append(sql)
            raise OperationalError("the connection was closed")
        return result

    with connection.execute_wrapper(cut):
        yield
    assert lost
