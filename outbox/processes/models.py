"""The table of processes that report, with its queries."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Self
from uuid import UUID

from django.db import models

from config.fields import IdentifierField
from config.processes.alive import Identity, mark_of, place

SILENT = timedelta(seconds=30)  # three reports that did not come
DAY = timedelta(days=1)
LONGEST_HOLDS = 500  # characters of what a process works on
RESTART = timedelta(minutes=10)  # who returns within is the same worker, restarted


class WorkerProcessQuerySet(models.QuerySet["WorkerProcess"]):
    def of_last_day(self, now: datetime) -> Self:
        return self.filter(seen_at__gt=now - DAY)

    def outdated(self, now: datetime) -> Self:
        return self.filter(seen_at__lte=now - DAY)

    def unended(self) -> Self:
        """Those that did not say that they end."""
        return self.filter(ended_at=None)

    def of_worker(self, identity: Identity) -> Self:
        """Earlier processes of the same command, on a host of the same name."""
        return self.filter(host=identity.host, command=identity.command, arguments=identity.arguments)

    def run_by(self, key: int, run: UUID) -> Self:
        """The row, while it is still of this process: a later one of the same worker takes it over."""
        return self.filter(pk=key, run=run)

    def forget(self, row: WorkerProcess) -> bool:
        """Delete the row unless it has reported since, or another process has it; whether it was there."""
        return bool(self.run_by(row.pk, row.run).filter(seen_at=row.seen_at).delete()[0])

    def overdue_here(self, now: datetime, patience: timedelta) -> Self:
        """Those of this host that should have reported, and nobody has looked for."""
        return self.unended().filter(place=place(), missed_at=None, seen_at__lt=now - patience)


class WorkerProcess(models.Model):
    """A process that works, or did within a day. The next one of the same command and host takes its row over."""

    run = models.UUIDField(unique=True, help_text="Which process has this row: an earlier one changes nothing.")
    command = IdentifierField(max_length=50)
    arguments = models.CharField(max_length=300, default="")
    host = models.CharField(max_length=255)
    place = models.CharField(
        max_length=32, help_text="Where its number means this process: host, its start, container."
    )
    pid = models.BigIntegerField(help_text="Its number on its host.")
    mark = models.CharField(max_length=40, help_text="Tells it from a later process with the same number.")
    version = models.CharField(max_length=100)
    starts = models.IntegerField(default=1, help_text="How many processes have had this row.")
    kept_since = models.DateTimeField(help_text="Since when this worker runs here, restarts included.")
    since = models.DateTimeField(help_text="When this process started.")
    seen_at = models.DateTimeField(db_index=True, help_text="Its last report.")
    round_at = models.DateTimeField(null=True, help_text="When its loop last came round.")
    holds = models.CharField(max_length=LONGEST_HOLDS, default="", help_text="What it works on, as it last said.")
    moved = models.BigIntegerField(default=0, help_text="Records, messages or batches since it started.")
    rate = models.FloatField(default=0.0, help_text="The same a second, since the report before.")
    unit = models.CharField(max_length=30, default="")
    ended_at = models.DateTimeField(null=True, help_text="When it said that it ends.")
    error = models.CharField(max_length=500, default="", help_text="What ended it, or what it waits for.")
    missed_at = models.DateTimeField(null=True, help_text="When another process of its host did not find it any more.")

    objects = WorkerProcessQuerySet.as_manager()

    class Meta:
        verbose_name = "worker"
        permissions = [("forget_workerprocess", "Can forget workers that are gone")]
        indexes = [models.Index(fields=["host", "command"], name="workerprocess_host")]

    def __str__(self) -> str:
        return f"{self.command} on {self.host}, process {self.pid}"

    @property
    def is_here(self) -> bool:
        """Whether it ran where this code runs, so that one can look."""
        return self.place == place()

    @property
    def is_gone(self) -> bool:
        """Whether somebody who can look does not find it: we, or another process of its host."""
        if self.is_here:
            mark = mark_of(self.pid)
            return mark is not None and (not mark or mark != self.mark)
        return self.missed_at is not None

    def may_hold(self, name: str) -> bool:
        """Whether it may work on this channel or stream: who has said nothing may, and of a list that was cut nobody knows."""
        return name in self.holds.split(", ") or len(self.holds) in (0, LONGEST_HOLDS)

    def is_silent(self, now: datetime) -> bool:
        return now - self.seen_at > SILENT

    def may_be_replaced(self, now: datetime) -> bool:
        """Whether the next process of this worker may have the row: not while this one may still be alive, as far as is known."""
        return self.ended_at is not None or self.is_gone or (not self.is_here and self.is_silent(now))
