"""What beat does besides its schedule, and when the schedule is due."""

from __future__ import annotations

import socket
import urllib.request
from datetime import UTC, datetime

import pytest
from celery.signals import beat_init
from django.conf import settings as django_settings
from django.db import OperationalError

from config.celery import app
from config.partitions import rotation
from config.processes import beat
from outbox.tasks import recover_claims
from tests.crash.platform import free_port


@pytest.fixture
def rotations(monkeypatch):
    """How often the rotation was asked for; partitions last as long as `lasting` says."""
    asked = []
    app.loader.import_default_modules()
    monkeypatch.setattr(app.tasks[beat.ROTATION], "delay", lambda: asked.append(1))
    return asked


def lasting(monkeypatch, days):
    """Rotation keeps three months ahead of dead letters."""
    monkeypatch.setattr(rotation, "days_by_table", lambda now: {"outbox_deadletter": days})


def test_a_beat_that_is_started_anew_every_day_rotates(monkeypatch):
    """By an interval of a day it never would: the first day is never over."""
    daily = django_settings.CELERY_BEAT_SCHEDULE["rotate-partitions"]["schedule"]
    monkeypatch.setattr(daily, "nowfun", lambda: datetime(2026, 11, 22, 3, 10, 5, tzinfo=UTC))
    assert daily.is_due(datetime(2026, 11, 21, 23, 0, tzinfo=UTC)).is_due
    assert not daily.is_due(datetime(2026, 11, 22, 3, 10, 1, tzinfo=UTC)).is_due


@pytest.mark.django_db
@pytest.mark.parametrize(("days", "times"), [(0.0, 1), (30.0, 1), (31.0, 0), (90.0, 0)])
def test_a_beat_that_starts_late_rotates_at_once(monkeypatch, rotations, days, times):
    lasting(monkeypatch, days)
    beat_init.send(sender=None)
    assert len(rotations) == times


@pytest.mark.django_db
def test_beat_starts_without_a_database(monkeypatch, rotations):
    def away(now):
        raise OperationalError("gone")

    monkeypatch.setattr(rotation, "days_by_table", away)
    beat.rotate_when_short()
    assert rotations == []


@pytest.fixture
def port(settings):
    settings.CELERY_METRICS_PORT = free_port()
    return settings.CELERY_METRICS_PORT


@pytest.mark.django_db(transaction=True)
def test_the_process_that_runs_the_jobs_serves_what_they_count(port):
    recover_claims.delay()
    recover_claims.delay()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
        assert "spillway_recovered_total" in page.read().decode()


def test_a_taken_port_is_said_and_tried_again(port, caplog):
    with socket.create_server(("0.0.0.0", port)):  # noqa: S104 (the address the metrics are served on)
        beat.serve_metrics()
    assert "CELERY_METRICS_PORT" in caplog.text
    beat.serve_metrics()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
        assert page.status == 200
