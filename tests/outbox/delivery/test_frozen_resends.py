"""Whoever sends again is frozen between the look at what was sent already and the new message, or loses its session: one new mail."""

from __future__ import annotations

import uuid
from contextlib import suppress
from datetime import timedelta

import pytest
from django.db import OperationalError, connection

from config.admin.levers import Operator
from config.database.clock import database_now
from config.letters import Refusal
from outbox.delivery import levers
from outbox.delivery.levers import resend
from outbox.messages.filters import MessageFilter
from outbox.models import OutboxMessage, ReplayBatch, ReplayItem, Resend
from outbox.replay_batches import requests, run
from outbox.replay_batches.models import LEASE
from outbox.verify import checks
from tests.frozen import Point, frozen_at
from tests.lost_sessions import lost_answer
from tests.outbox.replay_batches.scripted_flow import confirm, counts, run_until, step
from tests.outbox.scripted import message, promise

pytestmark = pytest.mark.django_db(transaction=True)
ANNA, BELA = Operator("Anna"), Operator("Bela")
TRACED = [levers.__file__]
LONG_AGO = timedelta(days=2)
both = pytest.mark.parametrize("committed", [True, False])
locks = pytest.mark.skipif(connection.vendor == "sqlite", reason="whoever is frozen in a transaction stops all others")


@pytest.fixture
def family(memory, go):
    """What makes a message that was sent, and sent again long ago: both ids."""

    def make(aggregate: str = "order:1") -> tuple[uuid.UUID, uuid.UUID]:
        first = promise(aggregate)
        go(memory)
        copy = resend(first, ANNA, "it never came")
        go(memory)
        Resend.objects.filter(pk=copy).update(created_at=database_now() - LONG_AGO)
        return first, copy

    return make


def batch_of(pk: uuid.UUID) -> ReplayBatch:
    chosen = MessageFilter(ids=(str(pk),))
    return confirm(run_until(requests.draft("resend", chosen, ANNA), "previewed"), rate=10_000)


def alike(batch: ReplayBatch, pk: uuid.UUID) -> ReplayBatch:
    """Another batch like this one, of another message: without its preview, for which hundreds of tries have no time."""
    item = ReplayItem.objects.of(batch).get()
    other = ReplayBatch.objects.get(pk=batch.pk)
    other.pk = item.pk = None
    other.save(force_insert=True)
    item.batch, item.letter = other, pk
    item.save(force_insert=True)
    return other


def held(batch: ReplayBatch) -> tuple[uuid.UUID, list[ReplayItem]]:
    """The batch as a worker has it that is about to act: its token, and the items that it has read."""
    token = uuid.uuid4()
    ReplayBatch.objects.filter(pk=batch.pk).update(
        state="running", lease_token=token, lease_until=database_now() + LEASE
    )
    return token, list(ReplayItem.objects.of(batch))


def copies_of(pk: uuid.UUID) -> list[uuid.UUID]:
    return list(Resend.objects.of([pk]).values_list("message_id", flat=True))


def verified() -> bool:
    return all(check.ok for check in checks())


@locks
def test_a_batch_frozen_at_any_line_sends_nothing_again_that_a_person_has(family, memory, go):
    pattern = batch_of(family()[0])

    def frozen_once(at: Point | None) -> list[Point]:
        first, copy = family(f"order:{at}"[-100:])
        batch = alike(pattern, first)
        token, items = held(batch)

        def a_person() -> None:
            with suppress(Refusal):
                resend(copy, BELA, "they called")
            go(memory)

        passed = frozen_at(at, lambda: run.act_on_chunk(batch, token, items), a_person, TRACED)
        go(memory)
        assert len(copies_of(first)) == 2, at
        return passed

    points = frozen_once(None)
    for point in (point for point in points if point[2] == 1):
        frozen_once(point)
    assert memory.repeats == {}
    assert Resend.objects.exclude(batch=None).count() > 1, "the batch was never the first"
    assert ReplayItem.objects.filter(state="skipped").count() > 1, "the person was never the first"


@locks
def test_a_person_frozen_behind_the_look_sends_nothing_again_that_another_has(family, memory, go):
    def frozen_once(at: Point | None) -> list[Point]:
        first, copy = family(f"order:{at}"[-100:])
        done: list[uuid.UUID] = []

        def ask(pk: uuid.UUID, who: Operator) -> None:
            with suppress(Refusal):
                done.append(resend(pk, who, "they called"))

        def another() -> None:
            ask(copy, BELA)
            go(memory)

        passed = frozen_at(at, lambda: ask(first, ANNA), another, TRACED)
        go(memory)
        assert len(copies_of(first)) == 1 + len(done), at
        looked = is_behind_the_look(passed[: passed.index(at) + 1]) if at else True
        assert len(done) == 1 or not looked, at
        return passed

    points = frozen_once(None)
    for point in (point for point in points if point[2] == 1):
        frozen_once(point)
    assert verified()


def is_behind_the_look(passed: list[Point]) -> bool:
    """Whether the content of the new message, which comes next, was begun."""
    first = levers._content.__code__.co_firstlineno
    return any(first <= line < first + 6 for _file, line, _times in passed)


@both
def test_a_session_that_ends_at_a_persons_commit_is_one_new_mail_and_no_fault(family, memory, go, committed):
    first, _copy = family()
    with lost_answer(committed=committed):
        again = resend(first, ANNA, "they called")
    go(memory)
    assert (copies_of(first)[-1], len(copies_of(first)), message(again).state) == (again, 2, "sent")
    assert verified()


@both
def test_a_session_that_ends_at_a_batchs_commit_is_one_new_mail(family, memory, go, committed):
    first, _copy = family()
    batch = batch_of(first)
    token, items = held(batch)
    with lost_answer(committed=committed), pytest.raises(OperationalError):
        run.act_on_chunk(batch, token, items)
    run.Steps(token).leave(batch.pk)
    for _ in range(10):
        step()
        go(memory)
    batch.refresh_from_db()
    assert (batch.state, counts(batch), len(copies_of(first))) == ("done", {"verified": 1}, 2)
    assert verified()


def test_items_that_a_late_commit_has_acted_on_are_not_acted_on_again(family, memory, go):
    """Its answer was lost, and the worker had read the items once more before it stood."""
    first, _copy = family()
    batch = batch_of(first)
    token, items = held(batch)
    assert run.act_on_chunk(batch, token, items) == 1
    go(memory)
    assert run.act_on_chunk(batch, token, items) == 0
    assert ReplayItem.objects.get().state == "requeued"
    assert (len(copies_of(first)), OutboxMessage.objects.count()) == (2, 3)
    assert verified()
