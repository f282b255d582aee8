"""An incident is over when it has ended: not when a list of home is cut before it, or another line covers it."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from buffer.events.models import Batch
from buffer.streams import GROUP
from config.admin.home import needs_of, pictures_of
from config.database.clock import database_now
from config.kafka import topic_name
from config.kafka.client import reachability
from outbox.bookkeeping.models import Watermark
from outbox.channels.models import ChannelState
from outbox.groups.models import FailureGroup, GroupHour, hour_of
from outbox.notices.incidents import look
from outbox.notices.models import Incident
from outbox.processes import overview
from outbox.processes.models import WorkerProcess
from outbox.replay_batches import lifecycle
from outbox.replay_batches.models import ReplayBatch
from tests.outbox.notices.conftest import a_need
from throttler.models import Lane

pytestmark = pytest.mark.django_db
LONG_AGO = timedelta(hours=9)


def a_group(number: int, **more: object) -> FailureGroup:
    seen = database_now() - LONG_AGO + timedelta(seconds=number)
    given = {"state": "new", "open_count": 3, "total_count": 3, "first_seen": seen, "last_seen": seen}
    return FailureGroup.objects.create(
        fingerprint=str(number), source="ledger", step="apply", reason="unknown", title=f"Bad {number}", **given | more
    )


def a_batch(**more: object) -> ReplayBatch:
    given = {"verb": "requeue", "state": "stopped", "eligible": 5, "pinned": 15, "created_at": database_now()}
    return ReplayBatch.objects.create(requested_by="Ada", started_at=database_now(), **given | more)


def dead_workers(number: int, ago: timedelta) -> None:
    then = database_now() - ago
    WorkerProcess.objects.bulk_create(
        WorkerProcess(
            run=uuid4(), command="relay_outbox", host="app-1", place="elsewhere", pid=7, mark="1", version="1",
            since=then, kept_since=then, seen_at=then,
        )
        for _ in range(number)
    )  # fmt: skip


def is_open(kind: str, key: object) -> bool:
    return Incident.objects.open().filter(kind=kind, key=str(key)).exists()


def looked() -> None:
    look(database_now())


# -- Lists that are cut --------------------------------------------------------------------------------------
def test_a_group_is_over_when_it_is_done_and_not_when_newer_ones_fill_the_list():
    oldest = [a_group(number) for number in range(2)]
    looked()
    FailureGroup.objects.bulk_create(
        FailureGroup(
            fingerprint=str(number), source="ledger", step="apply", reason="unknown", title="Newer", state="new",
            open_count=1, total_count=1, first_seen=database_now(), last_seen=database_now(),
        )
        for number in range(10, 140)
    )  # fmt: skip
    looked()
    assert all(is_open("failure_group", group.pk) for group in oldest)
    FailureGroup.objects.filter(pk=oldest[0].pk).update(open_count=0)
    FailureGroup.objects.filter(pk=oldest[1].pk).update(owner_name="Ada", state="acknowledged")
    looked()
    assert not any(is_open("failure_group", group.pk) for group in oldest)


def test_a_group_goes_on_rising_when_others_fill_the_list():
    mine = {"state": "acknowledged", "owner_name": "Ada", "state_since": database_now() - LONG_AGO}
    now = database_now()
    group = a_group(0, last_seen=now - timedelta(minutes=1), **mine)
    arrivals = [GroupHour(group_id=group.pk, hour=hour_of(now) - back, arrived=n) for back, n in ((0, 400), (1, 10))]
    GroupHour.objects.bulk_create(arrivals)
    looked()
    for number in range(1, 102):
        a_group(number, last_seen=database_now(), **mine)
    looked()
    assert is_open("failure_group", f"{group.pk} rising")
    GroupHour.objects.all().delete()
    looked()
    assert not is_open("failure_group", f"{group.pk} rising")


def test_a_stopped_batch_needs_somebody_however_many_stop_after_it_and_however_long_ago():
    first = a_batch(created_at=database_now() - timedelta(days=800))
    others = [a_batch() for _ in range(lifecycle.MOST_STOPPED + 1)]
    found = [need for need in needs_of(pictures_of(database_now()), database_now()) if need.kind == "batch"]
    assert [need.key for need in found] == [str(batch.pk) for batch in (*others[::-1], first)]
    looked()
    assert all(is_open("batch", batch.pk) for batch in (first, *others))


def test_a_stopped_batch_is_over_when_somebody_goes_on_with_it_and_not_when_others_stop_or_a_week_is_over():
    first = a_batch()
    looked()
    for _ in range(lifecycle.MOST_STOPPED):
        a_batch()
    looked()
    assert is_open("batch", first.pk)
    ReplayBatch.objects.filter(pk=first.pk).update(created_at=database_now() - timedelta(days=8))
    looked()
    assert is_open("batch", first.pk)
    ReplayBatch.objects.filter(pk=first.pk).update(state="running")
    looked()
    assert not is_open("batch", first.pk)


def test_a_dead_worker_is_not_over_when_more_processes_report_than_are_looked_at():
    dead_workers(1, LONG_AGO)
    dead = WorkerProcess.objects.get()
    looked()
    dead_workers(overview.MOST, timedelta(hours=1))
    looked()
    assert is_open("worker", dead.pk)
    WorkerProcess.objects.filter(pk=dead.pk).delete()
    looked()
    assert not is_open("worker", dead.pk)


def test_messages_of_a_customer_still_expire_when_those_of_another_are_nearer_to_their_end():
    def a_lane(customer: str, age: timedelta) -> Lane:
        now = database_now()
        return Lane.objects.create(
            customer_id=customer, partition=0, backlog=7, first=0, drained=0, seen=9, day=(now - age).date(),
            oldest_at=now - age, updated_at=now,
        )  # fmt: skip

    lane = a_lane("c-1", LONG_AGO)
    looked()
    a_lane("c-2", LONG_AGO + timedelta(hours=1))
    looked()
    assert is_open("expiring", "c-1")
    assert is_open("expiring", "c-2")
    Lane.objects.filter(pk=lane.pk).update(backlog=0, oldest_at=None)
    looked()
    assert not is_open("expiring", "c-1")


def test_of_more_needs_than_begin_at_one_look_none_is_lost_and_none_ends(needed):
    needed += [a_need("runway", f"table {number}", "watch") for number in range(700)]
    looked()
    assert Incident.objects.open().count() == 500
    looked()
    assert Incident.objects.open().count() == 700
    needed.insert(0, a_need("runway", "urgent"))
    looked()
    assert Incident.objects.open().count() == 701


# -- Lines that cover others ---------------------------------------------------------------------------------
def test_what_waited_already_is_not_over_because_kafka_is_away(monkeypatch):
    """Home has one line then; nothing else begins, and nothing else has ended."""
    monkeypatch.setattr(reachability, "ask", lambda: True)
    then = database_now() - timedelta(minutes=10)
    Watermark.objects.create(
        group=topic_name(GROUP), topic=topic_name("transfer-requests"), partition=0, next_offset=1, updated_at=then
    )
    Batch.objects.create(
        batch_id=uuid4(), stream="transfer-requests", location_id="WH-1", sequence=1, reason="idle",
        partition_key=202611, event_count=1, payload="{}", claimed_at=then,
    )  # fmt: skip
    ChannelState.objects.update_or_create(
        name="kafka", defaults={"breaker": "open", "opened_at": then, "updated_at": then}
    )
    looked()
    names = [("partition", "reader Ingest"), ("stuck", "batches"), ("channel", "kafka away")]
    assert [is_open(*name) for name in names] == [True] * 3
    monkeypatch.setattr(reachability, "ask", lambda: False)
    looked()
    assert is_open("partition", "kafka")
    assert [is_open(*name) for name in names] == [True] * 3
    Batch.objects.update(status="sent", sent_at=then)
    Watermark.objects.update(updated_at=database_now())
    ChannelState.objects.update(breaker="closed")
    looked()
    assert not Incident.objects.open().exclude(kind="worker").exists()


def test_nobody_answers_any_better_because_somebody_pauses_the_channel():
    then = database_now() - timedelta(minutes=10)
    more = {"breaker": "open", "opened_at": then, "updated_at": then}
    ChannelState.objects.update_or_create(name="email", defaults=more)
    looked()
    ChannelState.objects.update(paused=True, pause_reason="the provider moves", paused_at=then)
    looked()
    assert is_open("channel", "email away")
    assert is_open("channel", "email paused")
    ChannelState.objects.update(breaker="closed")
    looked()
    assert not is_open("channel", "email away")


def test_what_another_line_covers_begins_nothing(monkeypatch):
    monkeypatch.setattr(reachability, "ask", lambda: False)
    then = database_now() - timedelta(minutes=10)
    Watermark.objects.create(
        group=topic_name(GROUP), topic=topic_name("transfer-requests"), partition=0, next_offset=1, updated_at=then
    )
    looked()
    assert list(Incident.objects.open().values_list("kind", "key")) == [("partition", "kafka")]
