"""Each kind of trouble, staged in the tables where it stands: who subscribed to it is told, and told when it is over."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from uuid import uuid4

import pytest
from django.conf import settings

from buffer import home as buffer
from buffer.events.models import Bucket
from config.admin.home import needs_one_by_one
from config.admin.levers import Operator
from config.database.clock import database_now
from config.flows import Need
from config.partitions import rotation
from outbox import home as outbox
from outbox.audit_log.actions import record
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import Watermark
from outbox.channels.models import ChannelState
from outbox.groups.models import FailureGroup, GroupHour, hour_of
from outbox.models import OutboxMessage, ProofRound
from outbox.notices.incidents import look
from outbox.notices.models import KINDS, Incident, Notice
from outbox.processes import overview as processes
from outbox.processes.models import WorkerProcess
from outbox.processes.overview import Liveness
from outbox.replay_batches.models import ReplayBatch
from outbox.sign_in.passwords import VERB
from tests.docs.test_docs_complete import anchors
from tests.outbox.scripted import promise
from tests.tree import ROOT
from throttler.models import Lane

pytestmark = pytest.mark.django_db
Mend = Callable[[], object]
LONG_AGO = timedelta(hours=9)


def new_group(_patch: pytest.MonkeyPatch) -> Mend:
    now = database_now()
    group = FailureGroup.objects.create(
        fingerprint="f", source="ledger", step="apply", reason="unknown_stock", title="Unknown stock", first_seen=now,
        last_seen=now, state="new", open_count=3, total_count=3,
    )  # fmt: skip
    return lambda: FailureGroup.objects.filter(pk=group.pk).update(open_count=0)


def rising_group(_patch: pytest.MonkeyPatch) -> Mend:
    """Somebody has it in hand, for hours, and now it gets more than in the hour before."""
    now = database_now()
    group = FailureGroup.objects.create(
        fingerprint="f", source="ledger", step="apply", reason="unknown_stock", title="Unknown stock", state="acknowledged",
        first_seen=now - LONG_AGO, state_since=now - LONG_AGO, last_seen=now, owner_name="Ada", open_count=500,
        total_count=500,
    )  # fmt: skip
    GroupHour.objects.bulk_create(
        GroupHour(group_id=group.pk, hour=hour_of(now) - back, arrived=number) for back, number in ((0, 400), (1, 10))
    )
    return lambda: GroupHour.objects.filter(group_id=group.pk).delete()


def refused_mails(_patch: pytest.MonkeyPatch) -> Mend:
    new_group(_patch)
    FailureGroup.objects.update(source="outbox", step="deliver", reason="refused")
    counters.add({("outbox", "email", "permanent"): 21}, database_now())
    return FailureGroup.objects.all().delete


def dead_worker(_patch: pytest.MonkeyPatch) -> Mend:
    then = database_now() - timedelta(minutes=10)
    row = WorkerProcess.objects.create(
        run=uuid4(), command="relay_outbox", host="app-1", place="elsewhere", pid=7, mark="1", version="1", since=then,
        kept_since=then, seen_at=then,
    )  # fmt: skip
    return lambda: WorkerProcess.objects.filter(pk=row.pk).delete()


def paused_channel(_patch: pytest.MonkeyPatch) -> Mend:
    now = database_now()
    reasons = {"paused": True, "pause_reason": "refused ten times", "paused_at": now, "updated_at": now}
    row, _ = ChannelState.objects.update_or_create(name="email", defaults=reasons)
    return lambda: ChannelState.objects.filter(pk=row.pk).update(paused=False)


def throttled_channel(_patch: pytest.MonkeyPatch) -> Mend:
    now = database_now()
    told = {"wait_until": now + timedelta(minutes=20), "updated_at": now}
    row, _ = ChannelState.objects.update_or_create(name="kafka", defaults=told)
    promise(channel="kafka", payload={"topic": "downstream", "key": "k", "value": "v"})
    OutboxMessage.objects.update(available_at=now - timedelta(minutes=61))
    return lambda: ChannelState.objects.filter(pk=row.pk).update(wait_until=now - timedelta(minutes=2))


def stopped_partition(_patch: pytest.MonkeyPatch) -> Mend:
    row = Watermark.objects.create(
        group="buffer-ingest", topic="transfer-requests", partition=3, next_offset=1, alarm="damaged",
        updated_at=database_now(),
    )  # fmt: skip
    return lambda: Watermark.objects.filter(pk=row.pk).update(alarm="")


def stopped_batch(_patch: pytest.MonkeyPatch) -> Mend:
    batch = ReplayBatch.objects.create(
        verb="requeue", state="stopped", note="9 of 10 failed again.", eligible=5, pinned=15, requested_by="Ada",
        created_at=database_now(), started_at=database_now(),
    )  # fmt: skip
    return lambda: ReplayBatch.objects.filter(pk=batch.pk).update(state="cancelled")


def late_customer(_patch: pytest.MonkeyPatch) -> Mend:
    now = database_now()
    lane = Lane.objects.create(
        customer_id="c-1", partition=0, backlog=7, first=0, drained=0, seen=9, day=(now - LONG_AGO).date(),
        oldest_at=now - LONG_AGO, updated_at=now,
    )  # fmt: skip
    return lambda: Lane.objects.filter(pk=lane.pk).update(backlog=0, oldest_at=None)


def short_runway(patch: pytest.MonkeyPatch) -> Mend:
    ends = {"buffer_bufferedevent": 1.0}
    patch.setattr(rotation, "days_by_table", lambda now: ends)
    return ends.clear


def letters_without_effect(_patch: pytest.MonkeyPatch) -> Mend:
    now = database_now()
    ProofRound.objects.create(source="ledger", overdue=4, oldest_at=now - LONG_AGO, looked_at=now)
    return lambda: ProofRound.objects.update(overdue=0)


def held_warehouse(_patch: pytest.MonkeyPatch) -> Mend:
    bucket = Bucket.objects.create(stream="transfer-requests", location_id="WH-1", held=True)
    return lambda: Bucket.objects.filter(pk=bucket.pk).update(held=False)


def used_break_glass(patch: pytest.MonkeyPatch) -> Mend:
    patch.setattr(settings, "PASSWORD_LOGIN", False)
    record(Operator("break-glass"), VERB, "User break-glass", reason="", result="logged in with the password")
    return lambda: patch.setattr(settings, "PASSWORD_LOGIN", True)


STAGED = {
    "failure_group": (new_group, "Unknown stock"),
    "failure_group, rising": (rising_group, "Rising: "),
    "worker": (dead_worker, "relay_outbox on app-1"),
    "channel": (paused_channel, "Channel email is paused"),
    "channel, throttled": (throttled_channel, "kafka is told to wait"),
    "partition": (stopped_partition, "transfer-requests, partition 3 is stopped"),
    "batch": (stopped_batch, "was stopped by its rule"),
    "expiring": (late_customer, "Messages of c-1 "),
    "runway": (short_runway, "Partitions of buffer_bufferedevent end in 1 days"),
    "stuck": (letters_without_effect, "without effect"),
    "on_hold": (held_warehouse, "1 warehouse is held"),
    "sign_in": (used_break_glass, "The break-glass account was used"),
}


def test_no_kind_is_left_out():
    assert {name.partition(",")[0] for name in STAGED} == set(KINDS)


# -- The priorities of the alerts, beside it -------------------------------------------------------------------
LINE = re.compile(r"^\| `(\w+)` \| (.+) \| (now|soon) \| ([\w, ]+) \|$", re.MULTILINE)
LINES = LINE.findall((ROOT / "docs" / "alerts.md").read_text())
ALERT = re.compile(r"- alert: (\w+)\n.*?labels: \{severity: (\w+), priority: (.+?)\}\n", re.DOTALL)
ALERTS = ALERT.findall((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
WAKES = {"now": "page", "soon": "ticket"}


def test_what_wakes_people_is_what_home_says_cannot_wait():
    severities = {(name, severity) for name, severity, _priority in ALERTS}
    told = {(name, WAKES[urgency]) for _kind, _words, urgency, names in LINES for name in names.split(", ")}
    assert told - severities == set()
    named = {name for name, _severity in told}
    assert {pair for pair in severities if pair[0] in named} == told, "both rules of an alert that has two"
    assert all((severity == "page") == ("P3" not in priority) for _name, severity, priority in ALERTS)
    assert {kind for kind, *_ in LINES} < set(KINDS)


def _hangs() -> Need:
    sighting = SimpleNamespace(state=Liveness.HANGS, row=None)
    return Need(processes._urgency(sighting, ()), "", "", "", "")


URGENT = {
    "partitions of a table end within three days": lambda: _runway(2.9),
    "they end, and less than a third is left of what is kept ahead": lambda: _runway(3.1),
    "one is gone and others go on, or it hangs": _hangs,
    "the event buffer is full": lambda: buffer._full(SimpleNamespace(open=1)),
    "messages are held by workers that are gone": lambda: outbox._stuck(SimpleNamespace(stuck=1)),
}
STAGES = {
    "a channel is paused, or nobody answers there": paused_channel,
    "a partition is stopped, or its reader does not report": stopped_partition,
    "a worker is gone, and no other one does its work": dead_worker,
    "messages wait for a decision, or requeued letters are without effect": letters_without_effect,
    "any other group": new_group,
    "a batch that Kafka refuses, or mails while over a tenth of them is refused": refused_mails,
}


def _runway(days: float) -> Need:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rotation, "short", lambda now: {"a_table": days})
        (need,) = rotation.partition_needs(database_now())
    return need


@pytest.mark.parametrize(("words", "urgency"), [(words, urgency) for _kind, words, urgency, _names in LINES])
def test_home_is_as_urgent_as_the_table_says(words, urgency, monkeypatch):
    if words in URGENT:
        assert URGENT[words]().urgency == urgency
    elif words in STAGES:
        STAGES[words](monkeypatch)
        look(database_now())
        kind = next(kind for kind, line, *_ in LINES if line == words)
        assert {row.urgency for row in Incident.objects.open() if row.kind == kind} == {urgency}


@pytest.mark.parametrize("name", sorted(STAGED.keys() - {"on_hold"}))  # which somebody has done on purpose
def test_home_and_the_notice_say_where_the_runbook_is(name, monkeypatch):
    STAGED[name][0](monkeypatch)
    page, _, anchor = next(need.runbook for need in needs_one_by_one(database_now())).partition("#")
    assert not anchor or anchor in anchors(ROOT / "docs" / page)
    look(database_now())
    why = Incident.objects.get().why
    assert f"Runbook: docs/{page}" in why
    assert ("Open it with import_stock, then requeue." in why) == name.startswith("failure_group")


@pytest.mark.parametrize("name", STAGED)
def test_who_subscribed_is_told_of_it_and_of_its_end(name, subscribe, monkeypatch):
    stage, words = STAGED[name]
    kind = name.partition(",")[0]
    mine = subscribe(name="mine", kinds=[kind])
    others = subscribe(name="others", kinds=sorted(set(KINDS) - {kind}))
    mend = stage(monkeypatch)
    look(database_now())
    incidents = [incident for incident in Incident.objects.open() if words in incident.title]
    assert [incident.kind for incident in incidents] == [kind]
    notices = Notice.objects.filter(incident=incidents[0])
    assert [(notice.subscription_id, notice.phase) for notice in notices] == [(mine.pk, "opened")], others
    notices.update(state="sent", sent_at=database_now())
    mend()
    look(database_now() + timedelta(hours=1))
    assert list(notices.order_by("pk").values_list("phase", flat=True)) == ["opened", "resolved"]
