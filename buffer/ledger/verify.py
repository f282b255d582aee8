"""The ledger's invariants: sums are quantities, transfers have two ends, every record has an outcome."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Count, Sum

from buffer.ledger.handler import GROUP, LONGEST_NAME
from buffer.ledger.models import InventoryStock, InventoryTracking
from buffer.ledger.statements import NAME
from config.database.snapshot import consistent_snapshot
from config.flows import Check
from config.kafka import topic_name
from config.kafka.positions import TopicPartition
from outbox.bookkeeping import counters
from outbox.bookkeeping.verify import (
    OFFENDERS,
    every_position_is_kept,
    every_record_has_an_outcome,
    no_partition_is_stopped,
)
from outbox.letters.verify import letters_counted

OUTCOMES = ("applied", "duplicate", "skipped", "parked")


def checks() -> Iterator[Check]:
    """All of them, in one snapshot; two of them read the whole ledger once each, grouped by the server."""
    with consistent_snapshot():
        yield every_record_has_an_outcome(NAME, OUTCOMES)
        yield every_position_is_kept(NAME, topic_name(GROUP), _place_of)
        yield no_partition_is_stopped(NAME, topic_name(GROUP))
        yield _sums_are_quantities()
        yield _no_half_transfer()
        yield _rows_are_counted()
        yield letters_counted([NAME])


def _place_of(scope: str) -> TopicPartition | None:
    """None for a topic that is not in MOVEMENTS any more."""
    name, _, number = scope.rpartition("/")
    known = {topic[:LONGEST_NAME]: topic for topic in settings.MOVEMENTS}
    return (topic_name(known[name]), int(number)) if name in known and number.isdigit() else None


def _sums_are_quantities() -> Check:
    """One pass over the ledger; a stock without movements and movements without a stock are found as well."""
    stock, tracking = (connection.ops.quote_name(model._meta.db_table) for model in (InventoryStock, InventoryTracking))
    sql = (
        "SELECT stock_id, SUM(quantity), SUM(total) FROM ("  # noqa: S608 (names of our own)
        f"SELECT id AS stock_id, quantity, 0 AS total FROM {stock} UNION ALL "
        f"SELECT stock_id, 0 AS quantity, SUM(delta) AS total FROM {tracking} GROUP BY stock_id"
        f") AS sides GROUP BY stock_id HAVING SUM(quantity) <> SUM(total) ORDER BY stock_id LIMIT {OFFENDERS}"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql)
        offenders = [
            {"stock": stock_id, "quantity": int(quantity), "sum of movements": int(total)}
            for stock_id, quantity, total in cursor.fetchall()
        ]
    return Check(f"{NAME}: the movements of every stock sum up to its quantity", rows=offenders)


def _no_half_transfer() -> Check:
    transfers = InventoryTracking.objects.filter(reference_type="TRANSFER").values("reference_id")
    ends = transfers.annotate(ends=Count("stock_id"), total=Sum("delta"))
    half = ends.exclude(ends=2, total=0).order_by()
    offenders: list[Any] = [{**row, "total": int(row["total"])} for row in half[:OFFENDERS]]
    return Check(f"{NAME}: every transfer has two ends that cancel out", rows=offenders)


def _rows_are_counted() -> Check:
    """Rows that somebody deleted and a replay put back are counted as restored only."""
    totals = counters.totals(NAME)
    written, restored = totals.get("movements", 0), totals.get("restored", 0)
    rows = InventoryTracking.objects.count()
    expected = rows if written <= rows <= written + restored else written + restored
    return Check(f"{NAME}: rows = movements counted", expected, rows)
