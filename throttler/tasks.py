"""Celery tasks of this app: each may run twice at once."""

from celery import shared_task

from config.database.clock import database_now
from outbox.bookkeeping.leases import only_one
from throttler.lanes.read_model import sweep


@shared_task
def sweep_mirror() -> str:
    """Lanes that have been empty for an hour, old charts, owners that are gone."""
    with only_one("sweep_mirror", 3600) as mine:
        return f"{sweep(database_now())} rows swept" if mine else "another process is at it"
