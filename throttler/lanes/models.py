"""Tables of the read model: lanes, partitions, owners, five-minute counts; and how owners divide the output rate."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import models

from config.fields import IdentifierField

REPORTED = timedelta(seconds=10)  # an owner that is silent for longer says nothing about now


class LaneQuerySet(models.QuerySet["Lane"]):
    def waiting(self) -> LaneQuerySet:
        """Those with a message that waits: of an emptied one nothing is old, and nothing expires."""
        return self.filter(backlog__gt=0)


class Lane(models.Model):
    """A customer in a partition who waits, or did within the hour. Lanes that are live have no row.

    What waits is exactly the valid input in (drained, seen].
    """

    customer_id = IdentifierField()
    partition = models.IntegerField()
    topic_id = models.CharField(max_length=36, default="")
    backlog = models.BigIntegerField()
    waits = models.BigIntegerField(default=0, help_text="Messages of the backlog that the store does not have yet.")
    first = models.BigIntegerField(help_text="The offset with which this backlog began.")
    drained = models.BigIntegerField(help_text="Everything up to this offset has left or expired.")
    seen = models.BigIntegerField(help_text="The last offset decided.")
    day = models.DateField(null=True, help_text="Of the oldest row that waits.")
    newest = models.DateField(
        null=True, help_text="The day of the newest row that waits. Empty also in what an earlier release wrote."
    )
    oldest_at = models.DateTimeField(null=True, help_text="When the oldest message that waits was created.")
    limiter = models.JSONField(default=dict, help_text="tat and quotas, as in the changelog.")
    updated_at = models.DateTimeField()

    objects = LaneQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["partition", "customer_id"], name="lane_customer")]
        indexes = [
            models.Index(fields=["customer_id"], name="lane_of_customer"),
            models.Index(fields=["-backlog", "id"], name="lane_largest"),
            models.Index(fields=["day"], name="lane_day"),
            models.Index(fields=["oldest_at"], name="lane_oldest"),
        ]

    def __str__(self) -> str:
        return f"{self.customer_id} in {self.partition}: {self.backlog} wait"


class LanePartition(models.Model):
    """An input partition as its owner last reported it: whoever writes its lanes moves this row in the same transaction."""

    number = models.IntegerField(primary_key=True)
    topic_id = models.CharField(max_length=36, default="")
    epoch = models.BigIntegerField(help_text="Of the owner that wrote this: an older one changes nothing.")
    process = models.CharField(max_length=36, default="", help_text="Which of those that have had this epoch.")
    position = models.BigIntegerField(help_text="The offset that is committed.")
    decided = models.BigIntegerField(help_text="The first offset that nothing was decided about.")
    read = models.BigIntegerField(help_text="The first offset that has not come since the owner began.")
    updated_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"partition {self.number}, decided up to {self.decided}"


class LaneOwnerQuerySet(models.QuerySet["LaneOwner"]):
    def reporting(self, now: datetime) -> LaneOwnerQuerySet:
        """Those that work now."""
        return self.filter(updated_at__gt=now - REPORTED)


class LaneOwner(models.Model):
    """A throttler process that works now, or whose partitions nobody else has reported since.

    They stay with it when it ends: without a newer report of them no day of the buffer is dropped.
    """

    name = IdentifierField(max_length=100, primary_key=True, help_text="--instance, or a random name.")
    partitions = models.JSONField(default=list)
    transactions = models.BooleanField(default=True, help_text="False: at-least-once (KAFKA_TRANSACTIONS=off).")
    process = models.CharField(max_length=36, default="", help_text="Which process has the name now.")
    starts = models.IntegerField(default=1, help_text="How many processes have had the name.")
    updated_at = models.DateTimeField(db_index=True)

    objects = LaneOwnerQuerySet.as_manager()

    def __str__(self) -> str:
        return self.name


class OutputDivision(models.Model):
    """How the owners divide THROTTLER_OUTPUT_RATE: one row, whose entries they replace by turns. No read model: it counts."""

    version = models.BigIntegerField(help_text="One more with each change: who has read another one changes nothing.")
    entries = models.JSONField(default=dict, help_text="By owner: its part in millionths, its partitions, its demand.")

    def __str__(self) -> str:
        return f"version {self.version}"


class CustomerPeriod(models.Model):
    """Five minutes of a customer who was over the rate within twelve hours: what the charts draw."""

    customer_id = IdentifierField()
    partition = models.IntegerField()
    start = models.DateTimeField()
    live = models.BigIntegerField(default=0)
    buffered = models.BigIntegerField(default=0)
    drained = models.BigIntegerField(default=0)
    expired = models.BigIntegerField(default=0)
    backlog = models.BigIntegerField(default=0, help_text="At the end of the five minutes.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["customer_id", "partition", "start"], name="customerperiod_start")
        ]
        indexes = [models.Index(fields=["start"], name="customerperiod_age")]

    def __str__(self) -> str:
        return f"{self.customer_id} from {self.start:%F %H:%M}"
