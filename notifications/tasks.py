"""Celery tasks of this app: each may run twice at once."""

from celery import shared_task

from config.database.clock import database_now
from notifications.webhooks.inbox import apply_open
from outbox.bookkeeping.leases import only_one


@shared_task
def apply_webhooks() -> str:
    """Events that a crash left, or that came before their message."""
    with only_one("apply_webhooks", 300) as mine:
        if not mine:
            return "another process is at it"
        verdicts = apply_open(database_now())
        return ", ".join(f"{number} {verdict}" for verdict, number in sorted(verdicts.items())) or "nothing"
