"""Stock, what it is of, where it lies, and the ledger of everything that moved it; with the queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.db import models
from django.db.models import OuterRef, Q

from config.database.queries import batched
from config.fields import IdentifierField

# Older than any record, also than one without a timestamp, which Kafka calls -1.
NEVER = -2


class Captured(models.Model):
    """A row that follows a table elsewhere: the position of the change that last wrote it."""

    active = models.BooleanField(default=True, help_text="False once it was deleted at its source.")
    topic_id = models.CharField(max_length=36, default="", blank=True)
    source_partition = models.IntegerField(default=-1)
    source_offset = models.BigIntegerField(default=-1)
    source_timestamp = models.BigIntegerField(default=NEVER, help_text="Of the record, in milliseconds.")
    token = models.BigIntegerField(default=0, editable=False, help_text="The transaction that last wrote it.")
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        abstract = True


class InventoryLocation(Captured):
    """Where stock lies; every merchant has a default one."""

    merchant_id = IdentifierField(blank=True, default="", help_text="Empty for a location that was imported.")
    name = IdentifierField()
    is_default = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["merchant_id", "name"], name="inventorylocation_name")]

    def __str__(self) -> str:
        return f"{self.name} of {self.merchant_id}" if self.merchant_id else self.name


class InventoryItem(Captured):
    """What can be in stock; its id is that of the product variant."""

    id = IdentifierField(primary_key=True)
    merchant_id = IdentifierField(blank=True, default="")

    def __str__(self) -> str:
        return self.id


CHUNK = 5000


class StockQuerySet(models.QuerySet["InventoryStock"]):
    """One row per stock; adjusted only together with the movement that says why."""

    def locked(self, stock_ids: Iterable[str]) -> dict[str, int]:
        """`{stock id: quantity}` of those that exist, locked in sorted order so that two workers cannot deadlock."""
        return dict(self.select_for_update().order_by("pk")._among(stock_ids, "pk", "quantity"))

    def quantities(self, stock_ids: Iterable[str]) -> dict[str, int]:
        """`{stock id: quantity}` of those that exist, as they are just now."""
        return dict(self._among(stock_ids, "pk", "quantity"))

    def existing(self, stock_ids: Iterable[str]) -> set[str]:
        return {stock_id for (stock_id,) in self._among(stock_ids, "pk")}

    def _among(self, stock_ids: Iterable[str], *columns: str) -> Iterator[tuple]:
        # SQLite takes 32 766 parameters, and a message may name thousands of stocks.
        for chunk in batched(sorted(stock_ids), CHUNK):
            yield from self.filter(pk__in=chunk).values_list(*columns)


LARGEST = 2**62


class InventoryStock(models.Model):
    """How much there is of an item at a location: always the sum of its movements."""

    id = IdentifierField(primary_key=True, help_text="The stockId of the messages.")
    item = models.ForeignKey(InventoryItem, models.DO_NOTHING, null=True, blank=True, db_constraint=False)
    location = models.ForeignKey(InventoryLocation, models.DO_NOTHING, null=True, blank=True, db_constraint=False)
    quantity = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    topic: str  # no column: which its pages ask for (buffer/admin/stocks.py:with_topics)

    objects = StockQuerySet.as_manager()

    class Meta:
        constraints = [
            # Well before a BIGINT ends: there every database has another verdict, SQLite turns it into a float.
            models.CheckConstraint(
                condition=Q(quantity__gte=-LARGEST, quantity__lte=LARGEST), name="inventorystock_range"
            )
        ]
        permissions = [("adjust_inventorystock", "Can correct a quantity after a stocktake")]

    def __str__(self) -> str:
        return self.id


class TrackingQuerySet(models.QuerySet["InventoryTracking"]):
    """Rows of the ledger; it grows for ever, so every query names an index prefix."""

    def of_reference(self, reference_type: str, reference_id: str) -> TrackingQuerySet:
        """Every movement of one sale order, receipt, ticket item, transfer …"""
        return self.filter(reference_id=reference_id, reference_type=reference_type)

    def history_of(self, stock_id: str | OuterRef) -> TrackingQuerySet:
        """The movements of one stock, newest first."""
        return self.filter(stock_id=stock_id).order_by("-id")


class InventoryTracking(models.Model):
    """One movement of one stock: written once, never changed, kept for ever.

    (reference_type, reference_id, stock_id) is the deduplication key. PostgreSQL, MySQL and MariaDB
    partition the table by the hash of `reference_id`; the key is its SQL primary key there.
    """

    reference_type = IdentifierField(max_length=30)
    reference_id = IdentifierField()
    stock_id = IdentifierField()
    delta = models.BigIntegerField(help_text="Negative takes out.")
    topic = IdentifierField(max_length=249, default="", blank=True, help_text="Empty if not from Kafka.")
    topic_id = models.CharField(max_length=36, default="", blank=True)
    source_partition = models.IntegerField(null=True, blank=True)
    source_offset = models.BigIntegerField(null=True, blank=True)
    source_timestamp = models.BigIntegerField(null=True, blank=True, help_text="Of the record, in milliseconds.")
    payload_hash = models.BigIntegerField(default=0, help_text="Of the whole record it came from.")
    token = models.BigIntegerField(default=0, help_text="The transaction that wrote this row.")
    created_at = models.DateTimeField()

    objects = TrackingQuerySet.as_manager()

    class Meta:
        constraints = [
            # The reference first: it finds the partition, and with it everything that one order moved.
            models.UniqueConstraint(fields=["reference_id", "reference_type", "stock_id"], name="inventorytracking_key")
        ]
        indexes = [models.Index(fields=["stock_id", "id"], name="inventorytracking_stock")]
        verbose_name_plural = "inventory tracking"

    def __str__(self) -> str:
        return f"{self.reference_type} {self.reference_id}: {self.delta:+d} of {self.stock_id}"
