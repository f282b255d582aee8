"""Tables of these tests alone: one for each kind of partition column, one that records drops."""

# ruff: noqa: DJ008 (nobody prints these models)

from django.db import models
from django.db.models import Count, Q

from config.fields import IdentifierField, uuid7
from config.partitions import Partition, PartitionSpec


class Monthly(models.Model):
    """As the event buffer: the SQL primary key is (id, month)."""

    month = models.IntegerField()
    name = IdentifierField(max_length=50)
    status = models.CharField(max_length=10, default="sent")
    group = models.BigIntegerField(default=0, db_index=True)

    class Meta:
        app_label = "config"
        managed = False
        db_table = "test_monthly"
        constraints = [
            models.UniqueConstraint(fields=["month", "name"], name="test_monthly_name"),
            models.CheckConstraint(condition=Q(group__gte=0), name="test_monthly_group"),
        ]
        indexes = [
            models.Index(fields=["name", "id"], name="test_monthly_open", condition=Q(status="pending")),
            models.Index(fields=["status"], name="test_monthly_status"),
        ]


class Letter(models.Model):
    """As the dead letters: the time is in the primary key."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    status = models.CharField(max_length=10, default="closed")

    class Meta:
        app_label = "config"
        managed = False
        db_table = "test_letter"


class Daily(models.Model):
    """As the overflow buffer: partitioned by day."""

    day = models.DateField()
    name = models.CharField(max_length=50)

    class Meta:
        app_label = "config"
        managed = False
        db_table = "test_daily"


class Ledger(models.Model):
    """As the tracking ledger: unique for ever, so partitioned by hash."""

    kind = IdentifierField(max_length=20)
    reference = IdentifierField(max_length=50)

    class Meta:
        app_label = "config"
        managed = False
        db_table = "test_ledger"
        constraints = [models.UniqueConstraint(fields=["kind", "reference"], name="test_ledger_reference")]


class Dropped(models.Model):
    """What rotation took away, by the key of the partition."""

    key = models.CharField(max_length=100)
    status = models.CharField(max_length=10)
    number = models.BigIntegerField()

    class Meta:
        app_label = "config"
        managed = False
        db_table = "test_dropped"


MODELS = [Monthly, Letter, Daily, Ledger, Dropped]

MONTHLY = PartitionSpec(
    model="config.Monthly",
    column="month",
    period="month",
    encoding="yyyymm",
    keep_months_setting="TEST_KEEP_MONTHS",
    unfinished="status LIKE 'pend%'",
    before_drop="tests.config.partitions.models.record",
    locks=("config.Dropped",),
)
LETTERS = PartitionSpec(
    model="config.Letter",
    column="id",
    period="month",
    encoding="uuid7",
    keep_days_setting="TEST_KEEP_DAYS",
    unfinished="status = 'open'",
)
DAILY = PartitionSpec(
    model="config.Daily", column="day", period="day", encoding="date", keep_days_setting="TEST_KEEP_DAYS"
)


def record(using: str, spec: PartitionSpec, partition: Partition) -> None:
    """A before_drop as an app would write it."""
    counts = spec.rows(using, partition).values_list("status").annotate(number=Count("pk")).order_by()
    Dropped.objects.using(using).filter(key=partition.key).delete()
    Dropped.objects.using(using).bulk_create(
        [Dropped(key=partition.key, status=status, number=number) for status, number in counts]
    )
