"""A requeued letter is closed by what became of its message, and by nothing else."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from django.db import connection, transaction

from config.admin.levers import Operator
from config.database.clock import database_now
from outbox.delivery.levers import cancel
from outbox.letters import levers, redelivery
from outbox.letters.models import fitting
from outbox.letters.overview import letter_needs
from outbox.models import DeadLetter, FailureGroup, IdempotencyKey, OutboxMessage
from outbox.partitioned import DEAD_LETTERS
from outbox.verify import checks
from tests.outbox.scripted import AMBIGUOUS, PERMANENT, promise

pytestmark = pytest.mark.django_db
ME = Operator("me")


@pytest.fixture
def letter(memory, go) -> DeadLetter:
    """One that is open, of a message that its channel refused."""
    promise()
    memory.answers = [PERMANENT]
    go(memory)
    return DeadLetter.objects.get()


def again(letter: DeadLetter) -> DeadLetter:
    return DeadLetter.objects.get(pk=letter.pk)


def requeue(letter: DeadLetter, others: int = 0) -> None:
    """`others`: open letters beside it."""
    assert levers.pull("requeue", [letter.pk], ME, "try").acted == 1
    assert counts() == (others, 1)


def look() -> int:
    return redelivery.look_after(database_now())


def counts() -> tuple[int, int]:
    group = FailureGroup.objects.get()
    return group.open_count, group.requeued_count


def test_dead_again_stays_so_when_the_next_letter_is_sent_before_anybody_looked(letter, memory, go):
    requeue(letter)
    memory.answers = [PERMANENT]
    go(memory)
    after = DeadLetter.objects.open().get()
    assert levers.pull("requeue", [after.pk], ME, "try").acted == 1
    go(memory)
    assert look() == 2
    assert (again(letter).status, again(letter).successor) == ("failed_again", after.pk)
    assert (again(after).status, again(after).predecessor) == ("resolved", letter.pk)
    assert counts() == (0, 0)


def test_a_later_letter_from_before_it_was_taken_back_is_no_failure(letter, memory, go):
    """Its message had been brought back by another way, and had failed."""
    OutboxMessage.objects.update(state="pending", times_revived=1)
    memory.answers = [PERMANENT]
    go(memory)
    assert DeadLetter.objects.filter(revision=1).count() == 1
    assert levers.pull("requeue", [letter.pk], ME, "try").acted == 1
    assert look() == 0
    go(memory)
    assert look() == 1
    assert again(letter).status == "resolved"


def test_uncertain_waits(letter, memory, go):
    requeue(letter)
    memory.answers = [AMBIGUOUS]
    go(memory)
    assert look() == 0
    assert again(letter).status == "requeued"


def test_a_cancelled_message_closes_it_as_discarded(letter):
    requeue(letter)
    cancel([UUID(letter.topic_id)], ME, "not wanted")
    assert look() == 1
    assert (again(letter).status, again(letter).evidence) == ("discarded", "the message was cancelled")
    assert counts() == (0, 0)


def test_a_message_whose_day_was_dropped_is_made_anew(letter, memory, go):
    content = OutboxMessage.objects.values("payload", "aggregate", "channel", "event_type")
    before = content.get()
    OutboxMessage.objects.all().delete()
    IdempotencyKey.objects.all().delete()
    assert redelivery.judge([letter], database_now())[letter.pk].eligible
    requeue(letter)
    assert content.get() == before
    message = OutboxMessage.objects.get()
    assert (again(letter).carrier, message.state) == (message.pk, "pending")
    go(memory)
    assert [one.id for one in memory.calls[-1]] == [message.pk]
    look()
    assert (again(letter).status, again(letter).evidence) == ("resolved", "sent, receipt r-1")
    assert [check.name for check in checks() if not check.ok and "sent" not in check.name] == []


@pytest.mark.parametrize("known", [True, False])
def test_what_is_made_anew_stands_behind_its_first_message(letter, clock, known):
    """Here on a host whose clock is behind; a letter that names no message of ours is behind none."""
    OutboxMessage.objects.all().delete()
    if not known:
        DeadLetter.objects.update(topic_id=str(UUID(int=2**127)))
    clock.ahead(seconds=-60)
    requeue(letter)
    assert (OutboxMessage.objects.get().pk > UUID(letter.topic_id)) == known


def test_those_made_anew_of_one_aggregate_stand_as_they_were_promised(letter, memory, go):
    promise(payload={"n": 2})
    memory.always = PERMANENT
    go(memory)
    requeue(letter, others=1)
    go(memory)
    look()
    rows = list(DeadLetter.objects.open().order_by("pk"))
    assert rows[0].topic_id > rows[1].topic_id, "the first one failed again behind the second"
    OutboxMessage.objects.all().delete()
    with transaction.atomic():
        redelivery.take_back(rows, database_now())
    assert list(OutboxMessage.objects.order_by("pk").values_list("payload", flat=True)) == ['{"n":1}', '{"n":2}']


def test_what_is_made_anew_stands_behind_what_a_host_whose_clock_is_ahead_has_made(letter, memory, go, clock):
    memory.always = PERMANENT
    second = promise(payload={"n": 2})
    go(memory)
    OutboxMessage.objects.all().delete()
    clock.ahead(seconds=60)
    requeue(letter, others=1)
    clock.ahead(seconds=0)
    assert levers.pull("requeue", [DeadLetter.objects.get(topic_id=str(second)).pk], ME, "try").acted == 1
    assert list(OutboxMessage.objects.order_by("pk").values_list("payload", flat=True)) == ['{"n":1}', '{"n":2}']


def test_a_message_made_anew_that_fails_is_the_next_revision(letter, memory, go):
    OutboxMessage.objects.all().delete()
    requeue(letter)
    memory.answers = [PERMANENT]
    go(memory)
    look()
    after = DeadLetter.objects.open().get()
    assert (again(letter).status, again(letter).successor) == ("failed_again", after.pk)
    assert after.revision == letter.revision + 1


@pytest.mark.parametrize("state", ["pending", "processing", "uncertain", "cancelled"])
def test_what_is_on_its_way_or_was_cancelled_is_refused(letter, state):
    OutboxMessage.objects.update(state=state)
    assert not redelivery.judge([letter], database_now())[letter.pk].eligible
    assert levers.pull("requeue", [letter.pk], ME, "try").refused
    assert (again(letter).status, counts()) == ("open", (1, 0))


def test_what_was_sent_meanwhile_is_resolved_at_once(letter):
    OutboxMessage.objects.update(state="sent", receipt="r-9", sent_at=database_now())
    assert levers.pull("requeue", [letter.pk], ME, "try").acted == 1
    assert (again(letter).status, again(letter).evidence) == ("resolved", "sent, receipt r-9")
    assert counts() == (0, 0)


def test_two_letters_of_one_message_bring_it_back_once(letter):
    twin = DeadLetter.objects.get(pk=letter.pk)
    twin.pk, twin.revision = None, 7
    twin.save(force_insert=True)
    with transaction.atomic():
        found = redelivery.take_back(list(DeadLetter.objects.all()), database_now())
    assert sorted(effect.state for effect in found.values()) == ["refused", "waiting"]
    assert (found[twin.pk].state, OutboxMessage.objects.get().times_revived) == ("waiting", 1)


def test_nothing_closes_by_time_but_somebody_is_told(letter):
    requeue(letter)
    assert look() == 0
    assert [need.amount for need in letter_needs(["outbox"])] == []
    assert redelivery.look_after(database_now() + timedelta(minutes=61)) == 0
    assert again(letter).status == "requeued"
    (need,) = letter_needs(["outbox"])
    assert (need.amount, need.since) == (1, again(letter).requeued_at)
    OutboxMessage.objects.update(state="sent")
    look()
    assert list(letter_needs(["outbox"])) == []


def test_a_round_goes_on_where_a_chunk_ended(letter):
    for _ in range(4):
        twin = DeadLetter.objects.get(pk=letter.pk)
        twin.pk = None
        twin.save(force_insert=True)
    DeadLetter.objects.update(status="requeued")
    FailureGroup.objects.update(open_count=0, requeued_count=5)
    OutboxMessage.objects.update(state="sent")
    assert redelivery.look_after(database_now(), limit=2) == 5
    assert counts() == (0, 0)


@pytest.mark.parametrize("count", ["open_count", "requeued_count"])
def test_verify_finds_a_count_that_is_wrong(letter, count):
    requeue(letter)
    name = "failure groups of outbox count their open and requeued letters"
    assert all(check.ok for check in checks() if check.name == name)
    FailureGroup.objects.update(**{count: 9})
    (check,) = [check for check in checks() if check.name == name]
    assert not check.ok


def test_open_and_requeued_letters_keep_their_partition(letter):
    kept = set()
    for status in DeadLetter.Status:
        DeadLetter.objects.update(status=status)
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT COUNT(*) FROM outbox_deadletter WHERE {DEAD_LETTERS.unfinished}")
            kept |= {str(status)} if cursor.fetchone()[0] else set()
    assert kept == {"open", "requeued"}


def test_verify_finds_a_link_that_is_missing(letter, memory, go):
    requeue(letter)
    memory.answers = [PERMANENT]
    go(memory)
    look()
    name = "every letter that failed again has its successor"
    assert all(check.ok for check in checks() if check.name == name)
    DeadLetter.objects.open().update(predecessor=None)
    assert not all(check.ok for check in checks() if check.name == name)


def test_a_list_of_letters_is_read_in_short_queries(letter, monkeypatch, django_assert_num_queries):
    """The driver of MariaDB and MySQL holds the whole result of a query: 2.2 GB for a million letters."""
    monkeypatch.setattr("outbox.letters.models.LISTED", 3)
    for _ in range(7):
        twin = again(letter)
        twin.pk = None
        twin.save(force_insert=True)
    with django_assert_num_queries(4):
        found = [row.pk for row in DeadLetter.objects.all().one_by_one()]
    assert found == sorted(DeadLetter.objects.values_list("pk", flat=True))


def test_payloads_fit_up_to_the_limit_and_one_always_does(monkeypatch):
    monkeypatch.setattr("outbox.letters.models.MOST_BYTES", 10)
    assert [fitting(sizes) for sizes in ([], [99], [10, 1], [4, 6, 1], [1, 99, 1])] == [0, 1, 1, 2, 1]
