"""Leases: who works on a row or a scheduled job, until when, and how a worker learns that it lost it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import ClassVar, Self, TypeVar

from django.db import IntegrityError, models, transaction
from django.db.models import Q

from config.database.clock import database_now
from config.database.retry import Remedy, is_duplicate
from config.processes.worker import until_it_stands
from config.telemetry import metrics
from config.telemetry.logs import RowIds, log_committed
from outbox.bookkeeping.models import JobLease

# -- The lease: who works on a row, until when, and how a worker that lost it finds out ----------------------
# Claim in one short transaction, act outside any, settle with the token: zero rows changed means somebody
# else owns the row now, and the late worker touches nothing (a fencing token, as in Kleppmann's "How to do
# distributed locking").
Row = TypeVar("Row", bound="Claimable")


class ClaimQuerySet(models.QuerySet[Row]):
    """Queries about leases; each change is one guarded UPDATE."""

    def free(self, now: datetime, token: uuid.UUID | None = None) -> Self:
        """Rows nobody holds, whose holder's lease ran out, or that `token` holds."""
        rows = Q(lease_until__isnull=True) | Q(lease_until__lte=now)
        return self.filter(rows | Q(lease_token=token) if token else rows)

    def leased(self, now: datetime) -> Self:
        return self.filter(lease_until__gt=now)

    def stuck(self, now: datetime) -> Self:
        """Rows whose holder did not come back in time."""
        return self.filter(lease_token__isnull=False, lease_until__lte=now)

    def held_by(self, token: uuid.UUID) -> Self:
        return self.filter(lease_token=token)

    def lease(self, ids: list[object], token: uuid.UUID, until: datetime, now: datetime) -> int:
        """Stamp a lease on those rows that are still free, or this token's already; returns how many."""
        return self.free(now, token).filter(pk__in=ids).update(lease_token=token, lease_until=until)

    def release(self, token: uuid.UUID, **changes: object) -> int:
        """Give back what `token` holds; returns how many rows."""
        return self.held_by(token).update(lease_token=None, lease_until=None, **changes)

    def lock_free(self, now: datetime, token: uuid.UUID | None = None) -> Self:
        """Free rows, locked for this transaction; rows another worker is looking at are skipped."""
        return self.free(now, token).select_for_update(skip_locked=True)


class Claimable(models.Model):
    """A row that one worker at a time may act on."""

    lease_token = models.UUIDField(null=True, blank=True, editable=False)
    lease_until = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        abstract = True

    # False where the worker may have had an effect before it died: then somebody has to decide about each row.
    releasable: ClassVar[bool] = True


def recover(model: type[Claimable], now: datetime) -> int:
    """Release the rows of dead workers; safe to run twice, and beside the zombie itself. TypeError for a model
    whose rows must be decided about."""
    if not model.releasable:
        raise TypeError(f"{model.__name__} must be decided about row by row, not released")
    with transaction.atomic():
        stuck: ClaimQuerySet = ClaimQuerySet(model).stuck(now)
        pks = list(stuck.order_by("pk").select_for_update().values_list("pk", flat=True))
        if not pks:
            return 0
        recovered = stuck.filter(pk__in=pks).update(lease_token=None, lease_until=None)
        ids = RowIds(pks, row_id=None)
        log_committed("claims_recovered", "warning", table=model._meta.db_table, rows=recovered, ids=ids)
    metrics.RECOVERED.inc(recovered)
    return recovered


# -- Leases of scheduled jobs: a job runs once at a time, also when two beats run ----------------------------
def _a_few_times(failures: int, _remedy: Remedy) -> bool:
    return failures < 5


@contextmanager
def only_one(job: str, seconds: float) -> Iterator[bool]:
    """True for the one caller that holds the lease of `job`; it is given back at the end, or after `seconds`."""
    token = uuid.uuid4()
    held = until_it_stands(lambda: _lease(job, token, seconds), job, _a_few_times)
    try:
        yield held
    finally:
        if held:
            until_it_stands(lambda: _give_back(job, token), job, _a_few_times)


def _lease(job: str, token: uuid.UUID, seconds: float) -> bool:
    """Under the same token once more where the answer to a commit was lost: the lease is ours already."""
    now = database_now()
    until = now + timedelta(seconds=seconds)
    free = Q(until__lte=now) | Q(token=token)
    if JobLease.objects.filter(free, job=job).update(token=token, until=until):
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


def _give_back(job: str, token: uuid.UUID) -> None:
    JobLease.objects.filter(job=job, token=token).update(token=None, until=database_now())
