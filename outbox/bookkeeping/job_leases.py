"""Leases of scheduled jobs: a job runs once at a time, also when two beats run."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction

from config.database.clock import database_now
from config.database.errors import is_duplicate
from outbox.bookkeeping.models import JobLease


@contextmanager
def only_one(job: str, seconds: float) -> Iterator[bool]:
    """True for the one caller that holds the lease of `job`; it is given back at the end, or after `seconds`."""
    token = uuid.uuid4()
    now = database_now()
    held = _lease(job, token, now, now + timedelta(seconds=seconds))
    try:
        yield held
    finally:
        if held:
            JobLease.objects.filter(job=job, token=token).update(token=None, until=database_now())


def _lease(job: str, token: uuid.UUID, now: datetime, until: datetime) -> bool:
    if JobLease.objects.filter(job=job, until__lte=now).update(token=token, until=until):
        return True
    if JobLease.objects.filter(job=job).exists():
        return False
    try:
        with transaction.atomic():
            JobLease.objects.create(job=job, token=token, until=until)
    except IntegrityError as error:
        if not is_duplicate(error):
            raise
        return False  # the other beat was faster
    return True
