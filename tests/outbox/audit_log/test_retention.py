"""The operators' trail is kept for ever, or as long as AUDIT_RETENTION_DAYS says."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import connection

from config.admin.levers import Operator
from config.database import queries
from config.database.clock import database_now
from config.processes.beat import rotate_and_sweep
from outbox.audit_log import flow
from outbox.audit_log.actions import record
from outbox.audit_log.models import ActionSeal, OperatorAction

pytestmark = pytest.mark.django_db(transaction=True)
SWEPT = "audit: retention swept as AUDIT_RETENTION_DAYS says"
UNSEALED = "audit: every action older than a day has its seal"


@pytest.fixture
def trail():
    """One action a day for the last 40 days, the oldest first."""
    now = database_now()
    for age in range(40, 0, -1):
        action = record(Operator("ann"), "hold", f"{age} days ago", reason="test")
        OperatorAction.objects.filter(pk=action.pk).update(created_at=now - timedelta(days=age, seconds=-60))
    return now


def test_deeds_are_kept_for_ever_unless_told_otherwise(trail, settings):
    assert settings.AUDIT_RETENTION_DAYS == 0
    assert flow.sweep(trail) == 0
    assert OperatorAction.objects.count() == 40


def test_the_daily_round_deletes_older_deeds_in_chunks(trail, settings, monkeypatch):
    settings.AUDIT_RETENTION_DAYS = 10
    monkeypatch.setattr(queries, "CHUNK", 7)
    _plans, swept = rotate_and_sweep()
    assert swept == 30
    assert OperatorAction.objects.exclude(verb=flow.SWEEP).count() == 10
    assert not OperatorAction.objects.filter(created_at__lt=trail - timedelta(days=10)).exists()


@pytest.mark.parametrize("how", [{"dry_run": True}, {"no_drop": True}])
def test_a_round_that_drops_nothing_keeps_them(trail, settings, how):
    settings.AUDIT_RETENTION_DAYS = 10
    assert rotate_and_sweep(**how)[1] == 0
    assert OperatorAction.objects.count() == 40


def test_the_trail_says_what_retention_deleted_and_the_chain_stays_whole(trail, settings):
    settings.AUDIT_RETENTION_DAYS = 10
    flow.sweep(trail)
    said = OperatorAction.objects.get(verb=flow.SWEEP)
    assert said.detail == {"upto": 30, "days": 10}
    assert ActionSeal.objects.count() == 41
    assert all(check.ok for check in flow.checks())
    assert flow.sweep(trail) == 0
    assert OperatorAction.objects.filter(verb=flow.SWEEP).count() == 1, "nothing went: nothing is said"


@pytest.mark.parametrize("how", ["changed", "deleted"])
def test_the_command_names_what_was_tampered_with_after_retention(trail, settings, how, capsys):
    settings.AUDIT_RETENTION_DAYS = 10
    flow.sweep(trail)
    call_command("verify", flow="audit")
    kept = OperatorAction.objects.filter(verb="hold").first()
    with connection.cursor() as cursor:
        wanted = "UPDATE outbox_operatoraction SET reason = 'another' WHERE id = %s"
        cursor.execute(wanted if how == "changed" else "DELETE FROM outbox_operatoraction WHERE id = %s", [kept.pk])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        call_command("verify", flow="audit")
    assert ended.value.code == 1
    out = capsys.readouterr().out
    assert f"'action': {kept.pk}" in out
    assert f"'why': '{how}'" in out


def test_a_sweep_that_somebody_made_up_covers_only_what_was_old_enough(trail, settings):
    """It says ten days, so actions of last week cannot have gone by it."""
    settings.AUDIT_RETENTION_DAYS = 10
    flow.seal_all(trail)
    record(Operator("retention"), flow.SWEEP, "x", reason="x", detail={"upto": 40, "days": 10},
           subject_type=flow.TRAIL)  # fmt: skip
    OperatorAction.objects.filter(verb="hold").delete()
    unsealed = [row for check in flow.checks() for row in check.rows]
    assert len(unsealed) == flow.OFFENDERS, "an unsealed sweep covers nothing"
    flow.seal_all(trail)
    assert len([row for check in flow.checks() for row in check.rows]) == 10


@pytest.mark.parametrize(
    "detail", [{"upto": 40, "days": 0}, {"upto": 40, "days": -9}, {"upto": 40}, {"upto": 40, "days": "x"}, 7]
)
def test_a_sweep_that_was_made_up_and_sealed_covers_nothing_of_today(trail, settings, detail):
    settings.AUDIT_RETENTION_DAYS = 10
    flow.seal_all(trail)
    record(Operator("retention"), flow.SWEEP, "x", reason="x", detail=detail, subject_type=flow.TRAIL)
    OperatorAction.objects.filter(verb=flow.SWEEP).update(created_at=trail + timedelta(days=9000))
    flow.seal_all(trail)
    OperatorAction.objects.filter(verb="hold").delete()
    faults = {check.name: len(check.rows) for check in flow.checks() if not check.ok}
    assert faults == {"audit: every sealed action is as it was": 20, SWEPT: 1}


@pytest.mark.parametrize("days", [0, 20])
def test_a_sweep_of_other_days_than_the_settings_say_shows(trail, settings, days):
    record(Operator("retention"), flow.SWEEP, "x", reason="x", detail={"upto": 40, "days": 10},
           subject_type=flow.TRAIL)  # fmt: skip
    settings.AUDIT_RETENTION_DAYS = days
    assert SWEPT in {check.name for check in flow.checks() if not check.ok}
    OperatorAction.objects.filter(verb=flow.SWEEP).update(created_at=trail - timedelta(days=3))
    assert SWEPT not in {check.name for check in flow.checks() if not check.ok}


def test_an_action_that_nobody_sealed_for_a_day_shows(trail):
    assert UNSEALED in {check.name for check in flow.checks() if not check.ok}
    flow.seal_all(trail)
    assert all(check.ok for check in flow.checks())
    ActionSeal.objects.all().delete()
    assert UNSEALED in {check.name for check in flow.checks() if not check.ok}


@pytest.mark.parametrize(("number", "floor"), [(40, 10**9), (40, 0), (3, 10**9), (3, 0)])
def test_a_floor_that_was_moved_shows(trail, number, floor):
    flow.seal_all(trail)
    assert all(check.ok for check in flow.checks())
    ActionSeal.objects.filter(number=number).update(floor=floor)
    assert [check.name for check in flow.checks() if not check.ok] == ["audit: the floor of every seal fits"]


def test_a_sweep_that_was_killed_goes_on_the_next_day(trail, settings, monkeypatch):
    settings.AUDIT_RETENTION_DAYS = 10
    with monkeypatch.context() as patch:
        patch.setattr(flow, "_delete", lambda actions: 0)
        flow.sweep(trail)
    assert OperatorAction.objects.filter(verb="hold").count() == 40
    assert flow.sweep(trail) == 30
