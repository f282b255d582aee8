"""A requeued letter of the throttler is closed when the throttler has passed its record, and its lane has drained it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from django.db import transaction

from config.admin.levers import Operator
from config.database.clock import database_now
from config.kafka import Replayed, topic_name
from outbox.delivery.levers import cancel
from outbox.letters import levers, redelivery
from outbox.letters.burial import Letter, bury
from outbox.letters.edits import examine, requeue_copy, text_of
from outbox.letters.models import DeadLetter
from outbox.models import FailureGroup, OutboxMessage, Watermark
from tests.conftest import TOPIC_ID
from throttler.lanes.models import Lane

pytestmark = pytest.mark.django_db
INPUT = topic_name("notifications-in")


@pytest.fixture(autouse=True)
def registered(settings):
    settings.FLOWS = list(dict.fromkeys([*settings.FLOWS, "throttler.flow.Throttler"]))


def value(customer: str = "acme") -> bytes:
    body = {"notification_id": "n-1", "customer_id": customer, "recipient": "a", "message": {}}
    return msgspec.json.encode({**body, "created_at": datetime.now(UTC).isoformat()})


def letter_at(offset: int, partition: int = 3, headers: list[tuple[str, bytes]] | None = None) -> DeadLetter:
    record = Replayed(INPUT, partition, offset, 1_900_000_000_000, b"acme", value(), headers or [])
    with transaction.atomic():
        bury([Letter("throttler", "store", "reason", "text", record, TOPIC_ID)], "throttler", database_now())
    return DeadLetter.objects.get(offset=offset)


@pytest.fixture
def letter() -> DeadLetter:
    """One that was taken back, and whose message stands at 5/40 of the input."""
    found = letter_at(17)
    assert levers.pull("requeue", [found.pk], Operator("me"), "try").acted == 1
    return found


# -- an edited copy ------------------------------------------------------------------------------------
def edit(letter: DeadLetter, *change: str) -> tuple[str, list[str]]:
    text = text_of(letter).replace(*change)
    return text, [fault.path for fault in examine(letter, text, database_now()).faults]


def test_an_edited_copy_goes_to_the_input_for_the_same_customer(registered):
    found = letter_at(18)
    text, faults = edit(found, '"recipient": "a"', '"recipient": "b"')
    assert faults == []
    assert requeue_copy(found.pk, text, 0, Operator("me"), "the address was wrong").state == "waiting"
    message = OutboxMessage.objects.get()
    payload = msgspec.json.decode(message.payload)
    assert msgspec.json.decode(payload["value"])["recipient"] == "b"
    assert dict(payload["headers"])["replay_of"] == found.position
    sent()
    passed(41)
    assert look(found) == "resolved"


def test_a_copy_has_a_key_of_its_own_where_that_of_the_letter_was_used(letter):
    """Cancelled, and then taken by retention; the key is kept longer."""
    cancel(list(OutboxMessage.objects.values_list("pk", flat=True)), Operator("me"), "not wanted")
    assert look(letter) == "discarded"
    OutboxMessage.objects.all().delete()
    levers.pull("restore", [letter.pk], Operator("me"), "it is wanted")
    text, _ = edit(letter, '"recipient": "a"', '"recipient": "b"')
    assert requeue_copy(letter.pk, text, 0, Operator("me"), "the address was wrong").state == "waiting"
    assert OutboxMessage.objects.count() == 1


def sent(receipt: str = "5/40") -> None:
    OutboxMessage.objects.update(state="sent", receipt=receipt, sent_at=database_now())


def passed(offset: int, **more: object) -> None:
    place = {"group": topic_name("throttler"), "topic": INPUT, "partition": 5}
    known = {"next_offset": offset, "updated_at": database_now(), **more}
    Watermark.objects.update_or_create(**place, defaults=known)


def lane(drained: int, seen: int, customer: str = "acme") -> None:
    Lane.objects.all().delete()
    about = {"backlog": seen - drained, "first": drained + 1, "updated_at": database_now()}
    Lane.objects.create(customer_id=customer, partition=5, drained=drained, seen=seen, **about)


def look(letter: DeadLetter) -> str:
    redelivery.look_after(database_now())
    return DeadLetter.objects.get(pk=letter.pk).status


def test_it_is_resolved_when_it_was_sent_passed_and_drained(letter):
    assert look(letter) == "requeued"
    sent()
    assert look(letter) == "requeued"
    passed(40)  # the next to be read: it was not read yet
    assert look(letter) == "requeued"
    passed(41)
    lane(30, 60)
    assert look(letter) == "requeued"
    lane(40, 60)
    assert look(letter) == "resolved"
    assert DeadLetter.objects.get().evidence == "the throttler has passed notifications-in/5/40"


def test_the_lane_of_another_customer_is_not_waited_for(letter):
    sent()
    passed(41)
    lane(30, 60, "other")
    assert look(letter) == "resolved"


def test_a_letter_that_lay_there_before_the_topic_was_recreated_is_no_failure(letter):
    older = letter_at(40, 5)
    DeadLetter.objects.filter(pk=older.pk).update(created_at=letter.created_at)
    sent()
    passed(41)
    assert look(letter) == "resolved"


@pytest.mark.parametrize(
    ("headers", "state"), [([], "regressed"), ([("replay_of", INPUT.encode() + b"/3/17")], "open")]
)
def test_a_letter_that_its_own_replay_brings_back_is_no_recurrence(letter, headers, state):
    sent()
    passed(41)
    assert look(letter) == "resolved"
    assert FailureGroup.objects.get().state == "resolved"
    letter_at(99, headers=headers)
    assert FailureGroup.objects.get().state == state


def test_a_cancelled_message_closes_it_as_discarded_and_a_restored_letter_gets_another(letter):
    OutboxMessage.objects.update(state="cancelled")
    assert look(letter) == "discarded"
    assert levers.pull("restore", [letter.pk], Operator("me"), "again").acted == 1
    assert levers.pull("requeue", [letter.pk], Operator("me"), "try").acted == 1
    assert sorted(OutboxMessage.objects.values_list("state", flat=True)) == ["cancelled", "pending"]
    assert look(letter) == "requeued"


# -- an input that was created again -------------------------------------------------------------------
OLD, NEW = "5/40@old", "5/40@new"


def test_the_place_of_another_topic_proves_nothing(letter):
    sent(OLD)
    passed(90, topic_id="new")
    assert look(letter) == "requeued"
    passed(41, topic_id="old")
    assert look(letter) == "resolved"


@pytest.mark.parametrize("receipt", ["5/40", NEW])
def test_the_place_of_the_topic_that_is_read_proves_it_and_so_does_one_of_an_older_version(letter, receipt):
    sent(receipt)
    passed(41, topic_id="new")
    assert look(letter) == "resolved"


def test_what_went_to_a_topic_that_is_no_more_is_a_letter_again(letter):
    sent(OLD)
    passed(3, topic_id="new", caught_up_at=database_now() + timedelta(minutes=4))
    assert look(letter) == "requeued", "it may be the throttler that has not noticed yet"
    passed(3, topic_id="new", caught_up_at=database_now() + timedelta(minutes=6))
    assert look(letter) == "failed_again"
    again = DeadLetter.objects.get(predecessor=letter.pk)
    assert (again.status, again.reason, again.business_key, bytes(again.payload)) == (
        "open", "topic_recreated", letter.business_key, bytes(letter.payload),
    )  # fmt: skip
    assert levers.pull("requeue", [again.pk], Operator("me"), "once more").acted == 1
    assert OutboxMessage.objects.count() == 2


def test_a_letter_in_another_topic_at_its_place_is_not_what_became_of_it(letter):
    sent(OLD)
    passed(41, topic_id="old")
    letter_at(40, 5)  # of TOPIC_ID
    assert look(letter) == "resolved"


def test_a_lane_of_another_topic_is_not_waited_for(letter):
    sent(OLD)
    passed(41, topic_id="old")
    lane(30, 60)
    Lane.objects.update(topic_id="new")
    assert look(letter) == "resolved"
