"""A task of beat."""

from celery import shared_task


@shared_task
def count_depots() -> None:
    """Nothing: that it is known is enough."""
