"""The scheduled tasks: they do the work, and two beats do it once."""

from datetime import timedelta

import pytest
from django.conf import settings
from django.core.management import call_command

from config.celery import app
from config.database.clock import database_now
from outbox.bookkeeping import counters
from outbox.bookkeeping.leases import only_one
from outbox.bookkeeping.models import FlowMinute
from outbox.tasks import recover_claims, rotate_partitions

# MySQL commits at every ALTER TABLE, so a test in a transaction would not be one.
pytestmark = pytest.mark.django_db(transaction=True)


def test_every_scheduled_task_exists():
    app.loader.import_default_modules()
    assert {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()} <= set(app.tasks)


def test_rotation_sweeps_what_outlived_its_retention():
    now = database_now()
    counters.add({("transfer-requests", "", "read"): 1}, now - timedelta(days=2))
    counters.add({("transfer-requests", "", "read"): 1}, now)
    assert f"{len(settings.PARTITIONS)} tables rotated, 1 rows swept" in rotate_partitions()
    assert FlowMinute.objects.count() == 1


def test_a_dry_run_sweeps_nothing():
    counters.add({("transfer-requests", "", "read"): 1}, database_now() - timedelta(days=2))
    call_command("rotate_partitions", "--dry-run")
    assert FlowMinute.objects.count() == 1


@pytest.mark.parametrize("task", [rotate_partitions, recover_claims])
def test_a_second_beat_leaves_it_to_the_first(task):
    with only_one(task.name.rpartition(".")[2], 60):
        assert task() == "another process is at it"
    assert task() != "another process is at it"
