"""The outbox as a flow: each broken invariant is found, letters go back, home and /metrics tell the truth."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from config.admin.levers import Operator
from config.database.clock import database_now
from config.fields import uuid7, uuid7_milliseconds
from config.telemetry import metrics
from outbox.bookkeeping.models import Watermark
from outbox.channels import permits
from outbox.delivery import levers
from outbox.flow import Outbox
from outbox.letters.levers import pull
from outbox.letters.models import DeadLetter
from outbox.messages.retention import sweep_keys
from outbox.models import ChannelState, DeliveryAttempt, IdempotencyKey, OutboxMessage
from outbox.workers import change_capture
from tests.outbox.scripted import AMBIGUOUS, PERMANENT, THROTTLED, UNREACHABLE, Scripted, message, promise

pytestmark = pytest.mark.django_db(transaction=True)
ANN = Operator("ann")


def broken() -> list[str]:
    return [check.name for check in Outbox().verify() if not check.ok]


@pytest.fixture
def traffic(memory, go):
    """Every state at once, and nothing wrong."""
    memory.by_aggregate["order:dead"] = [PERMANENT]
    memory.by_aggregate["order:maybe"] = [AMBIGUOUS]
    for aggregate in ("order:1", "order:1", "order:2", "order:dead", "order:maybe"):
        promise(aggregate)
    go(memory)
    levers.cancel([promise("order:called-off")], ANN, "asked")
    promise("order:waits")
    assert broken() == []
    return memory


def test_a_message_that_vanished_is_missed(traffic):
    OutboxMessage.objects.filter(aggregate="order:2").delete()
    found = broken()
    assert any("published =" in name for name in found)
    assert any("every idempotency key" in name for name in found)


def test_a_message_nobody_published_is_found(traffic):
    row = OutboxMessage.objects.filter(state="pending").get()
    row.pk = None
    row.id = OutboxMessage._meta.pk.default()
    row.save(force_insert=True)
    assert any("published =" in name for name in broken())


def test_a_sent_message_without_an_attempt_is_found(traffic):
    DeliveryAttempt.objects.filter(message_id=OutboxMessage.objects.get(aggregate="order:2").pk).delete()
    assert [name for name in broken() if "attempt" in name]


def test_an_aggregate_out_of_order_is_found(traffic):
    first, _second = OutboxMessage.objects.filter(aggregate="order:1").order_by("id")
    rows = OutboxMessage.objects.filter(pk=first.pk)
    rows.update(sent_at=first.sent_at + timedelta(seconds=5))
    assert "outbox: no aggregate out of order" in broken()
    rows.update(times_uncertain=1)  # its successor did not wait for it
    assert broken() == []


def test_a_lease_nobody_has_is_found(traffic):
    OutboxMessage.objects.filter(state="pending").update(state="processing")
    assert "outbox: leases and times fit the states" in broken()


def test_swept_keys_are_still_counted(traffic):
    IdempotencyKey.objects.update(created_at=database_now() - timedelta(days=8))
    assert sweep_keys(database_now()) == 4, "not those of what waits, may have been sent, or has an open letter"
    assert IdempotencyKey.objects.count() == 3
    assert broken() == []
    promise("order:later")
    assert broken() == []


def test_a_requeued_letter_sends_its_message_and_a_discarded_one_does_not(traffic, go):
    dead = DeadLetter.objects.get()
    result = pull("requeue", [dead.pk], ANN, "the mailbox exists again")
    assert (result.acted, result.refused) == (1, [])
    assert go(traffic) >= 1
    row = message(OutboxMessage.objects.get(aggregate="order:dead").pk)
    assert (row.state, row.attempts, row.times_revived) == ("sent", 1, 1)
    assert broken() == []


def test_a_discarded_letter_leaves_its_message_dead(traffic):
    assert pull("discard", [DeadLetter.objects.get().pk], ANN, "nobody wants it").acted == 1
    assert OutboxMessage.objects.get(aggregate="order:dead").state == "dead_lettered"
    assert broken() == []


def gauges() -> dict[str, float]:
    names = {}
    for reading in Outbox().gauges(database_now()):
        names[reading.gauge._name] = reading.value
    return names


def test_gauges_say_what_waits(traffic, settings):
    found = gauges()
    assert found["spillway_outbox_pending"] == 1
    assert found["spillway_outbox_processing_stuck"] == 0
    assert found["spillway_breaker_open"] == 0
    assert "spillway_cdc_lag_seconds" not in found  # no listener was ever started
    Watermark.objects.create(
        group=change_capture.CDC_GROUP,
        topic=settings.OUTBOX_CDC_TOPIC,
        partition=0,
        next_offset=1,
        updated_at=database_now(),
    )
    change_capture.note_seen(uuid7_milliseconds(uuid7()), database_now())
    assert gauges()["spillway_cdc_lag_seconds"] == 0


@pytest.mark.parametrize(("operator", "by"), [(ANN, "person"), (permits.ITSELF, "spillway")])
def test_a_paused_channel_is_a_gauge_that_says_who_paused_it(traffic, operator, by):
    def paused():
        readings = [one for one in Outbox().gauges(database_now()) if one.gauge is metrics.CHANNEL_PAUSED]
        return {one.labels["by"]: one.value for one in readings if one.labels["channel"] == "memory"}

    assert paused() == {"person": 0, "spillway": 0}
    permits.pause("memory", operator, "moving house")
    assert paused() == {"person": 0, "spillway": 0} | {by: 1}


CLOSED = {"paused": {"paused": True}, "breaker open": {"breaker": "open"}, "told to wait": {"wait_until": database_now}}


@pytest.mark.parametrize("closed", CLOSED.values(), ids=CLOSED)
def test_a_closed_channel_takes_nothing_from_what_is_said_of_the_others(install, closed):
    """Its messages wait for people or for the other side, those of an open one for workers: both are told apart."""

    def said():
        values = {metrics.OUTBOX_OLDEST_PENDING: {}, metrics.CHANNEL_CLOSED: {}}
        for reading in Outbox().gauges(database_now()):
            values.get(reading.gauge, {})[reading.labels.get("channel")] = reading.value
        alarms = {need.key for need in Outbox().home_row(database_now()).needs}
        neglected = next(text for name, _ok, text in Outbox().diagnose() if name == "relay")
        return *values.values(), "due" in alarms, "is relay_outbox running" in neglected

    install(*(Scripted(name=name) for name in ("open", "shut", "idle")))
    permits.ensure(["open", "shut", "idle"])
    ages = {"open": timedelta(minutes=10), "shut": timedelta(hours=1)}
    for name, age in ages.items():
        promise(f"order:{name}", channel=name)
        OutboxMessage.objects.filter(channel=name).update(available_at=database_now() - age)
    more = {key: value() + timedelta(minutes=5) if callable(value) else value for key, value in closed.items()}
    ChannelState.objects.update(updated_at=database_now() - timedelta(hours=2))
    ChannelState.objects.filter(name="shut").update(**more)
    waits, shut = {"open": 600, "shut": 3600, "idle": 0}, {"open": 0, "shut": 1, "idle": 0}
    assert said() == (pytest.approx(waits, abs=30), shut, True, True)
    OutboxMessage.objects.filter(channel="open").delete()
    assert said() == (pytest.approx(waits | {"open": 0}, abs=30), shut, False, False)


@pytest.mark.parametrize(("end", "behind"), [(9, 4), (5, None)])
def test_what_waits_is_no_gauge_where_nobody_knows_it(traffic, settings, end, behind):
    """A position of a worker that has been silent for an hour."""
    watermark = Watermark.objects.create(
        group=change_capture.CDC_GROUP, topic=settings.OUTBOX_CDC_TOPIC, partition=0, next_offset=5, end_offset=end,
        updated_at=database_now() - timedelta(hours=1),
    )  # fmt: skip
    assert gauges().get("spillway_consumer_lag_records") == behind
    Watermark.objects.filter(pk=watermark.pk).update(updated_at=database_now(), caught_up_at=database_now())
    assert gauges()["spillway_consumer_lag_records"] == (behind or 0)


def test_an_uncertain_message_is_held_once_its_time_is_over(traffic):
    assert gauges()["spillway_outbox_held"] == 0
    OutboxMessage.objects.filter(state="uncertain").update(available_at=database_now() - timedelta(minutes=2))
    assert gauges()["spillway_outbox_held"] == 1


def test_a_channel_that_was_just_resumed_is_no_alarm_yet(memory):
    def alarmed() -> bool:
        return any("not being sent" in need.title for need in Outbox().home_row(database_now()).needs)

    promise("order:1")
    long_ago = database_now() - timedelta(minutes=10)
    OutboxMessage.objects.update(available_at=long_ago)
    ChannelState.objects.update(updated_at=long_ago)
    assert alarmed()
    permits.pause("memory", ANN, "the provider moves")
    permits.resume("memory", ANN, "it is back")
    assert not alarmed()
    ChannelState.objects.update(updated_at=database_now() - timedelta(minutes=2))
    assert alarmed()
    ChannelState.objects.update(wait_until=database_now() - timedelta(seconds=5))  # a 429 that has just ended
    assert not alarmed()
    # A channel that goes on failing changes its row with each try: that excuses nobody.
    ChannelState.objects.update(wait_until=None, failures=2, updated_at=database_now())
    assert alarmed()


def test_keys_are_overdue_when_nobody_sweeps(traffic):
    assert gauges()["spillway_idempotency_overdue_seconds"] == 0
    IdempotencyKey.objects.filter(pk=IdempotencyKey.objects.first().pk).update(
        created_at=database_now() - timedelta(days=8)
    )
    assert 86_400 <= gauges()["spillway_idempotency_overdue_seconds"] < 86_500
    sweep_keys(database_now())
    assert gauges()["spillway_idempotency_overdue_seconds"] == 0


def test_home_names_a_channel_that_does_not_send(traffic):
    permits.pause("memory", ANN, "moving house")
    picture = Outbox().home_row(database_now())
    assert [need.title for need in picture.needs if need.title.endswith("is paused")] == ["Channel memory is paused"]
    permits.resume("memory", ANN, "moved")
    ChannelState.objects.update(breaker="open", opened_at=database_now(), probe_at=database_now())
    picture = Outbox().home_row(database_now())
    (need,) = [need for need in picture.needs if need.title.startswith("Nobody answers at memory since")]
    assert need.urgency == "soon"
    ChannelState.objects.update(opened_at=database_now() - timedelta(minutes=1))
    (need,) = [need for need in Outbox().home_row(database_now()).needs if need.title.startswith("Nobody answers")]
    assert need.urgency == "now"
    assert gauges()["spillway_breaker_open"] == 1


def test_a_quota_that_is_used_up_is_told_after_an_hour_until_something_leaves(memory, go):
    """It is tried once an hour, and each time the other side says to wait for another one."""

    def told() -> list[str]:
        return [need.key for need in Outbox().home_row(database_now()).needs if need.kind == "channel"]

    def wait_until(**ahead: float) -> None:
        ChannelState.objects.update(wait_until=database_now() + timedelta(**ahead))

    promise("order:1")
    memory.answers = [replace(THROTTLED, retry_after=3600)] * 2
    go(memory)
    assert told() == []
    OutboxMessage.objects.update(available_at=database_now() - timedelta(minutes=61))
    wait_until(seconds=-1)
    assert told() == ["memory told to wait"], "the moment between two waits is no end"
    go(memory)
    assert told() == ["memory told to wait"]
    waited = [one for one in Outbox().gauges(database_now()) if one.gauge is metrics.OUTBOX_OLDEST_PENDING]
    assert [one.value for one in waited if one.labels["channel"] == "memory"] == [pytest.approx(3660, abs=30)]
    permits.pause("memory", ANN, "moving house")
    assert told() == ["memory paused"]
    permits.resume("memory", ANN, "moved")
    go(memory)
    assert (told(), OutboxMessage.objects.get().state) == ([], "sent")
    wait_until(minutes=5)
    promise("order:2")
    assert told() == [], "nothing has waited for long"


def test_home_asks_about_what_may_have_been_sent(traffic):
    OutboxMessage.objects.filter(state="uncertain").update(available_at=database_now() - timedelta(hours=1))
    titles = [need.title for need in Outbox().home_row(database_now()).needs]
    assert "Messages that may have been sent wait for a decision" in titles


def test_drained_means_nothing_unfinished(memory, go):
    assert Outbox().is_drained()
    promise("order:1")
    assert not Outbox().is_drained()
    memory.answers = [UNREACHABLE]
    go(memory)
    assert not Outbox().is_drained()
    OutboxMessage.objects.update(available_at=database_now())
    go(memory)
    assert Outbox().is_drained()
