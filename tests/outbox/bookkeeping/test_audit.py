"""The operators' trail is kept for ever, or as long as AUDIT_RETENTION_DAYS says."""

from __future__ import annotations

from datetime import timedelta

import pytest

from config.database import chunks
from config.database.clock import database_now
from config.processes.housekeeping import rotate_and_sweep
from outbox.bookkeeping import audit
from outbox.bookkeeping.models import OperatorAction

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def trail():
    """One deed a day for the last 40 days, the oldest first."""
    now = database_now()
    for age in range(40, 0, -1):
        deed = audit.record(audit.Operator("ann"), "hold", f"{age} days ago", reason="test")
        OperatorAction.objects.filter(pk=deed.pk).update(created_at=now - timedelta(days=age, seconds=-60))
    return now


def test_deeds_are_kept_for_ever_unless_told_otherwise(trail, settings):
    assert settings.AUDIT_RETENTION_DAYS == 0
    assert audit.sweep(trail) == 0
    assert OperatorAction.objects.count() == 40


def test_the_daily_round_deletes_older_deeds_in_chunks(trail, settings, monkeypatch):
    settings.AUDIT_RETENTION_DAYS = 10
    monkeypatch.setattr(chunks, "CHUNK", 7)
    _plans, swept = rotate_and_sweep()
    assert swept == 30
    assert OperatorAction.objects.count() == 10
    assert not OperatorAction.objects.filter(created_at__lt=trail - timedelta(days=10)).exists()


@pytest.mark.parametrize("how", [{"dry_run": True}, {"no_drop": True}])
def test_a_round_that_drops_nothing_keeps_them(trail, settings, how):
    settings.AUDIT_RETENTION_DAYS = 10
    assert rotate_and_sweep(**how)[1] == 0
    assert OperatorAction.objects.count() == 40
