"""The rules of retrying, as tables; and the lookups that the outbox's queries are made of."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from config.admin.levers import Operator
from outbox.channels.handlers import Message, Outcome
from outbox.delivery.retry import Limits, next_state, share_of
from outbox.letters.levers import pull
from outbox.models import DeadLetter, OutboxMessage
from tests.outbox.scripted import PERMANENT, promise

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RULES = Limits(max_retries=3, base=5, cap=30, reconcile=120)


def tried(attempts: int) -> Message:
    return Message(uuid.UUID(int=1), "e", "a", "", "", "", attempts, NOW, NOW + timedelta(days=1), NOW, 0, 0)


@pytest.mark.parametrize(("attempts", "most"), [(1, 5), (2, 10), (3, 20)])
def test_the_wait_doubles_with_each_try(attempts, most):
    after = next_state(tried(attempts), Outcome("transient"), NOW, RULES, fraction=1.0)
    assert (after.available_at - NOW).total_seconds() == most
    assert next_state(tried(attempts), Outcome("transient"), NOW, RULES, fraction=0.0).available_at == NOW


def test_the_wait_has_a_cap_and_a_floor():
    rules = Limits(max_retries=30, base=5, cap=30, reconcile=120)
    assert next_state(tried(20), Outcome("transient"), NOW, rules, 1.0).available_at == NOW + timedelta(seconds=30)
    greylisted = Outcome("transient", least_wait=60)
    assert next_state(tried(1), greylisted, NOW, rules, 0.0).available_at == NOW + timedelta(seconds=60)


@pytest.mark.parametrize("retries", [1, 2, 3, 4, 5, 20, 100])
def test_a_greylist_is_asked_again_over_twenty_minutes_however_few_the_retries(retries):
    rules = Limits(max_retries=retries, base=5, cap=30, reconcile=120)
    greylisted = Outcome("transient", least_wait=60, retries_last=1200)
    tries = [next_state(tried(attempt), greylisted, NOW, rules, 0.0) for attempt in range(1, retries + 1)]
    waits = [(each.available_at - NOW).total_seconds() for each in tries]
    assert sum(waits) >= 1199.999
    assert waits == sorted(waits)
    assert min(waits) >= 60
    late = next_state(tried(1), greylisted, NOW, rules, 1.0)
    assert (late.available_at - NOW).total_seconds() == pytest.approx(waits[0] + 5)
    assert share_of(0, 1, retries) == 0


def test_a_greylist_of_five_minutes_is_over_at_the_second_retry():
    assert [round(share_of(1200, retry, 3)) for retry in (1, 2, 3)] == [92, 277, 831]


def test_a_greylist_is_not_asked_after_the_message_expires():
    soon = tried(3)._replace(expires_at=NOW + timedelta(minutes=5))
    after = next_state(soon, Outcome("transient", least_wait=60, retries_last=1200), NOW, RULES)
    assert after.available_at == soon.expires_at


@pytest.mark.parametrize(("attempts", "state"), [(3, "pending"), (4, "dead_lettered")])
def test_the_first_try_and_three_retries(attempts, state):
    assert next_state(tried(attempts), Outcome("transient"), NOW, RULES).state == state


@pytest.mark.parametrize("kind", ["unreachable", "throttled", "auth"])
def test_what_is_not_the_messages_fault_never_ends_it(kind):
    after = next_state(tried(4), Outcome(kind), NOW, RULES)
    assert (after.state, after.attempts) == ("pending", 3)


@pytest.mark.django_db
def test_each_revival_that_fails_is_a_letter_of_its_own(memory, go):
    promise()
    memory.always = PERMANENT
    for revision in range(3):
        go(memory)
        letter = DeadLetter.objects.open().get()
        assert letter.revision == revision
        assert pull("requeue", [letter.pk], Operator("me"), "the mailbox exists again").acted == 1


@pytest.mark.django_db
def test_lists_of_constants_stand_in_the_statement():
    rows = OutboxMessage.objects.filter(state__oneof=("sent", "pending"))
    assert "IN ('sent', 'pending')" in str(rows.query)
    assert not rows.exists()
    with pytest.raises(ValueError, match="not plain words"):
        OutboxMessage.objects.filter(state__oneof=("x' OR 1=1 --",)).exists()


@pytest.mark.django_db
def test_any_of_nothing_is_nothing():
    assert not OutboxMessage.objects.filter(id__any=[]).exists()
    assert not OutboxMessage.objects.filter(id__any=[uuid.uuid4(), uuid.uuid4()]).exists()
