"""`verify --flow outbox`: names each row that somebody changed by hand, and is quiet about what people may do."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models import Q

from config.database.clock import database_now
from config.kafka import topic_name
from config.partitions.rotation import driver_for
from outbox.audit_log.flow import sweep
from outbox.audit_log.models import OperatorAction
from outbox.bookkeeping.counters import DROPPED
from outbox.bookkeeping.models import FlowCounter, Watermark
from outbox.delivery import levers
from outbox.flow import Outbox
from outbox.groups.models import FailureGroup
from outbox.letters.levers import pull
from outbox.letters.models import BurialKey, DeadLetter
from outbox.messages.publish import NONE_BEFORE, confirm
from outbox.messages.retention import ATTEMPTS_GONE, note_attempts, sweep_keys
from outbox.models import DeliveryAttempt, OutboxMessage
from outbox.partitioned import ATTEMPTS
from outbox.topic_replay.models import TopicReplay
from tests.config.conftest import broker, make_topic
from tests.outbox.aged import aged
from tests.outbox.scripted import AMBIGUOUS, TRANSIENT, message, promise
from tests.outbox.test_flow import ANN, traffic

__all__ = ["broker", "make_topic", "traffic"]

pytestmark = pytest.mark.django_db(transaction=True)
FAR = datetime(2099, 1, 1, tzinfo=UTC)


def failing() -> dict[str, list]:
    flow = Outbox()
    checks = [*flow.verify(), *flow.verify_payloads()]
    return {check.name.removeprefix("outbox: "): list(check.rows) for check in checks if not check.ok}


def of(aggregate):
    return OutboxMessage.objects.filter(aggregate=aggregate)


def topic_replay(**told):
    now = database_now()
    TopicReplay.objects.create(topic="t", since=now, until=now, reason="r", requested_by="ann", created_at=now, **told)


REPLAYS = "the state of every replay of a topic fits its times"
BY_HAND = {
    "a message cancelled": (
        lambda: of("order:waits").update(state="cancelled"), "cancelled by operators = cancelled + dropped"),
    "the action of a cancelled message deleted": (
        lambda: OperatorAction.objects.all().delete(), "cancelled by operators = cancelled + dropped"),
    "a pending message called sent": (
        lambda: of("order:waits").update(state="sent", sent_at=database_now()),
        "sent by workers + confirmed = sent + dropped"),
    "an uncertain message called sent": (
        lambda: of("order:maybe").update(state="sent", sent_at=database_now()),
        "sent by workers + confirmed = sent + dropped"),
    "a sent message called pending": (
        lambda: of("order:2").update(state="pending", sent_at=None), "sent by workers + confirmed = sent + dropped"),
    "a message available in 2099": (
        lambda: of("order:waits").update(available_at=FAR), "nothing waits for ever"),
    "an uncertain message to be decided in 2099": (
        lambda: of("order:maybe").update(available_at=FAR), "nothing waits for ever"),
    "a lease until 2099": (
        lambda: of("order:waits").update(state="processing", lease_until=FAR), "nothing waits for ever"),
    "a message called expired": (
        lambda: of("order:waits").update(state="expired"), "every message that failed has its letter"),
    "a message called a dead letter": (
        lambda: of("order:waits").update(state="dead_lettered"), "every message that failed has its letter"),
    "a dead letter called pending": (
        lambda: of("order:dead").update(state="pending"), "no message waits that is a letter"),
    "a dead letter called expired": (
        lambda: of("order:dead").update(state="expired"), "every message that failed has its letter"),
    "a replay of a topic called done without a begin": (
        lambda: topic_replay(state="done", finished_at=database_now()), REPLAYS),
    "a replay of a topic called cancelled without an end": (
        lambda: topic_replay(state="cancelled"), REPLAYS),
    "a replay of a topic running after its end": (
        lambda: topic_replay(state="running", finished_at=database_now()), REPLAYS),
    "a replay of a topic that has begun called pending": (
        lambda: topic_replay(started_at=database_now()), REPLAYS),
    "the payload of a message altered": (
        lambda: of("order:2").update(payload="{}"), "every message has the payload that was published"),
    "the channel of a message altered": (
        lambda: of("order:2").update(channel="sms"), "every message has the payload that was published"),
    "the payload of a letter altered": (
        lambda: DeadLetter.objects.update(payload=b"{}"), "every dead letter has the bytes that were received"),
    "a failure group deleted": (
        lambda: FailureGroup.objects.all()._raw_delete("default"), "every dead letter has its failure group"),
    "a burial key deleted": (
        lambda: BurialKey.objects.all().delete(), "every dead letter has its burial key"),
}  # fmt: skip


@pytest.mark.parametrize("change", BY_HAND)
def test_what_was_changed_by_hand_is_found(traffic, change):
    assert failing() == {}
    by_hand, name = BY_HAND[change]
    by_hand()
    assert failing()[name], "the row is named"


def test_a_group_or_key_that_is_gone_is_missed_after_its_letters_are_gone(traffic):
    DeadLetter.objects.all().delete()
    FailureGroup.objects.update(open_count=0)
    assert failing() == {}
    BurialKey.objects.all().delete()
    assert "burial keys = letters that failure groups have counted" in failing()


def test_what_people_and_providers_settle_is_no_finding(traffic, memory, go, later):
    memory.by_aggregate["order:proved"] = [TRANSIENT]
    memory.by_aggregate["order:asked"] = [AMBIGUOUS]
    proved, asked = promise("order:proved"), promise("order:asked")
    go(memory)
    assert confirm({proved: "r-9"}, database_now())
    assert levers.it_was_sent([asked], ANN, "the provider says so") == 1
    levers.cancel([of("order:waits").get().pk], ANN, "asked")
    pull("requeue", [DeadLetter.objects.get().pk], ANN, "try again")
    assert message(proved).state == message(asked).state == "sent"
    assert failing() == {}
    go(memory)
    assert failing() == {}


def test_attempts_that_a_shorter_retention_has_dropped_are_not_missed(memory, go, settings):
    name = "no sent message without its attempt"
    # On MySQL what another test dropped is committed, attempts and messages alike.
    FlowCounter.objects.filter(Q(flow=ATTEMPTS_GONE) | Q(scope__startswith=DROPPED)).delete()
    settings.ATTEMPT_RETENTION_DAYS = 1
    old = promise("order:old")
    go(memory)
    aged(old, 5)
    young = promise("order:young")
    go(memory)
    today = database_now().date()
    day = next(one for one in driver_for(ATTEMPTS, "default").existing() if one.holds(today - timedelta(days=5)))
    if day.holds(today):
        pytest.skip("on MySQL a test before this one has dropped that day for good: the next partition has taken it in")
    for partition in reversed(driver_for(ATTEMPTS, "default").existing()):
        if partition.upper and partition.upper <= day.upper:
            driver_for(ATTEMPTS, "default").drop(partition)
    note_attempts("default", ATTEMPTS, replace(day, upper=day.upper - timedelta(days=3)))  # an older one, dropped late
    settings.ATTEMPT_RETENTION_DAYS = 30
    assert name not in failing()
    DeliveryAttempt.objects.filter(message_id=young).delete()
    assert failing()[name] == [young]


def test_a_cancelled_message_outlives_its_deed(traffic, settings):
    name = "cancelled by operators = cancelled + dropped"
    settings.AUDIT_RETENTION_DAYS = 1
    old = aged(of("order:called-off").get().pk, 3)
    OperatorAction.objects.update(created_at=database_now() - timedelta(days=3))
    assert sweep(database_now()) == 1
    assert name not in failing()
    OperatorAction.objects.all().delete()  # with it goes what says that there was a sweep
    assert failing()[name] == [old]


def test_a_deed_about_more_messages_than_it_names_accuses_none(traffic):
    OperatorAction.objects.update(rows=5000, detail={"ids": []})
    assert failing() == {}


def test_a_position_beyond_the_log_of_change_capture_is_found(db, make_topic, settings):
    assert [check.ok for check in Outbox().verify_kafka()] == [True]
    topic = make_topic(settings.OUTBOX_CDC_TOPIC)
    Watermark.objects.create(
        group=topic_name("outbox-listen"), topic=topic, partition=0, next_offset=5, updated_at=database_now()
    )
    (check,) = Outbox().verify_kafka()
    assert "the log ends at 0" in check.rows[0]["why"]


def test_a_message_is_proved_as_long_as_its_key_is_kept(traffic, settings):
    of("order:2").update(payload="{}")
    settings.OUTBOX_IDEMPOTENCY_DAYS = 0
    sweep_keys(database_now() + timedelta(seconds=1))
    assert failing() == {}


def test_order_is_proven_by_the_databases_clock_and_not_by_ids(memory, go, clock):
    """As a host whose clock is behind would have made them: the later one has the lower id, and left first."""
    clock.ahead(seconds=5)
    first = promise()
    clock.ahead(seconds=0)
    second = promise(after=NONE_BEFORE)
    go(memory)
    assert memory.accepted == [second, first]
    assert failing() == {"no aggregate out of order": [("order:1", second)]}


def test_who_read_the_time_and_then_waited_for_the_aggregate_is_no_older(memory, go):
    before = database_now()
    ids = [promise(), promise(now=before)]
    go(memory)
    go(memory)
    assert memory.accepted == ids
    assert failing() == {}
