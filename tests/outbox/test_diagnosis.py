"""`doctor` sees a worker that is dead or frozen, and a channel by which nothing leaves."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest

from buffer.events.models import Bucket
from config.database.clock import database_now
from config.flows import flows
from config.kafka import topic_name
from config.kafka.positions import Log, Mark, start_of
from config.telemetry.redaction import masked_error
from outbox.bookkeeping.leases import only_one
from outbox.bookkeeping.models import JobLease, Watermark
from outbox.bookkeeping.progress import Progress, position_needs
from outbox.channels.models import ChannelState
from outbox.groups.models import FailureGroup, GroupHour, hour_of
from outbox.groups.reasons import what_to_do
from outbox.models import OutboxMessage
from outbox.replay_batches.models import ReplayBatch
from tests.conftest import order
from tests.outbox.scripted import PERMANENT, promise

pytestmark = pytest.mark.django_db
WORKERS = {
    "throttler": ("throttler", "notifications-in", "run_throttler"),
    "ledger": ("buffer-track", "PAYMENT_SUCCESS", "track_inventory"),
    "stream transfer-requests": ("buffer-ingest", "transfer-requests", "ingest_events"),
    "change capture": ("outbox-listen", "outbox.outbox_message", "listen_outbox"),
}


def lines():
    return {name: (ok, text) for flow in flows() for name, ok, text in flow.diagnose()}


def report(group, topic, age, **more):
    then = database_now() - timedelta(seconds=age)
    place = {"group": topic_name(group), "topic": topic_name(topic), "partition": 0}
    Watermark.objects.update_or_create(
        **place, defaults={"next_offset": 5, "end_offset": 5, "updated_at": then, **more}
    )


@pytest.mark.parametrize(("arrived", "flood"), [(99, False), (100, True)])
def test_a_flood_of_letters_that_nobody_has_in_hand_is_named_with_its_remedy(arrived, flood):
    now = database_now()
    group = FailureGroup.objects.create(
        fingerprint="f", source="transfer-requests", step="decode", reason="invalid_json", title="Invalid JSON",
        first_seen=now, last_seen=now, state="new", open_count=500, total_count=500,
    )  # fmt: skip
    GroupHour.objects.create(group_id=group.pk, hour=hour_of(now) - 1, arrived=60)
    GroupHour.objects.create(group_id=group.pk, hour=hour_of(now), arrived=arrived - 60)
    assert lines().get("dead letters") == (None if flood else (True, "500 open in nobody's hand"))
    assert lines().get("letters of transfer-requests") == (
        (False, f"Invalid JSON: 100 within two hours. {what_to_do(group)}") if flood else None
    )
    FailureGroup.objects.update(owner_name="Ada", state="acknowledged")
    assert lines()["dead letters"] == (True, "0 open in nobody's hand")


def test_an_installation_that_has_not_run_yet_is_right():
    assert all(ok for ok, _ in lines().values())


@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_that_reports_no_more_is_named(name):
    group, topic, command = WORKERS[name]
    report(group, topic, 5)
    assert lines()[name][0]
    report(group, topic, 40)
    ok, text = lines()[name]
    assert not ok
    assert f"is {command} running" in text


def test_a_stopped_partition_is_no_silent_worker():
    report("throttler", "notifications-in", 4000, alarm="offsets are gone")
    assert lines()["throttler"] == (False, "notifications-in/0: offsets are gone")


def test_nobody_flushes(ingest, records):
    ingest(records(order()))
    Bucket.objects.update(due_at=database_now() - timedelta(minutes=3))
    ok, text = lines()["flush"]
    assert not ok
    assert "is flush_buffer running" in text


def test_nobody_relays(memory):
    promise("order:1")
    assert lines()["relay"][0]
    long_ago = database_now() - timedelta(minutes=10)
    OutboxMessage.objects.update(available_at=long_ago)
    ChannelState.objects.update(updated_at=long_ago)
    ok, text = lines()["relay"]
    assert not ok
    assert "is relay_outbox running" in text
    ChannelState.objects.update(paused=True, pause_reason="moving")
    assert lines()["relay"][0], "behind a paused channel nobody relays"
    assert lines()["channel memory"] == (False, "paused: moving")


def test_nobody_carries_out_batches():
    now = database_now()
    batch = ReplayBatch.objects.create(
        verb="requeue", state="running", requested_by="a", created_at=now, lease_token=uuid.uuid4(), lease_until=now
    )
    assert lines()["replay batches"][0]
    ReplayBatch.objects.filter(pk=batch.pk).update(lease_until=now - timedelta(minutes=3))
    assert "is replay_letters running" in lines()["replay batches"][1]


def test_beat_is_dead():
    JobLease.objects.create(job="recover_claims", token=None, until=database_now())
    assert lines()["beat"][0]
    JobLease.objects.update(until=database_now() - timedelta(minutes=6))
    with only_one("notify_people", 30):
        pass  # it works without beat, and says nothing of it
    ok, text = lines()["beat"]
    assert not ok
    assert "is beat running" in text


def test_a_channel_that_accepts_nothing_is_not_open(memory, go):
    for number in range(9):
        memory.by_aggregate[f"order:{number}"] = [PERMANENT]
        promise(f"order:{number}")
    go(memory)
    assert lines()["channel memory"] == (True, "open"), "too few to say it"
    memory.by_aggregate["order:9"] = [PERMANENT]
    promise("order:9")
    go(memory)

    ok, text = lines()["channel memory"]
    assert not ok
    assert text == "accepts nothing: of the last 10 tries none was sent, most often permanent: no such mailbox"
    promise("order:10")
    go(memory)
    assert lines()["channel memory"][0]


@pytest.mark.parametrize("name", [*WORKERS, "messages-in"])
def test_a_stopped_partition_names_the_command_to_start(name):
    group, topic, command = {**WORKERS, "messages-in": ("outbox-intake", "messages-in", "ingest_messages")}[name]
    log = Log("new", 0, 9, None)
    report(group, topic, 5, alarm=start_of(Mark("old", 5), log).alarm)
    ok, text = lines()[name]
    assert not ok
    assert f"then start {command} with --accept-reset to read it from the beginning" in text
    row = Watermark.objects.get()
    said = [need.why for need in position_needs(Progress([row], row.updated_at), "It", command, [])]
    assert said == [text.removeprefix(f"{row.topic}/0: ")]
    assert masked_error(text) == text
