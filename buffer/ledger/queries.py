"""Sentences about stock and its movements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.db import models

from config.database.chunks import batched

CHUNK = 5000


class StockQuerySet(models.QuerySet):
    """One row per stock; adjusted only together with the movement that says why."""

    def locked(self, stock_ids: Iterable[str]) -> dict[str, int]:
        """`{stock id: quantity}` of those that exist, locked in sorted order so that two workers cannot deadlock."""
        return dict(self.select_for_update().order_by("pk")._among(stock_ids, "pk", "quantity"))

    def quantities(self, stock_ids: Iterable[str]) -> dict[str, int]:
        """`{stock id: quantity}` of those that exist, as they are just now."""
        return dict(self._among(stock_ids, "pk", "quantity"))

    def existing(self, stock_ids: Iterable[str]) -> set[str]:
        return {found for (found,) in self._among(stock_ids, "pk")}

    def _among(self, stock_ids: Iterable[str], *columns: str) -> Iterator[tuple]:
        # SQLite takes 32 766 parameters, and a message may name thousands of stocks.
        for chunk in batched(sorted(stock_ids), CHUNK):
            yield from self.filter(pk__in=chunk).values_list(*columns)


class TrackingQuerySet(models.QuerySet):
    """Rows of the ledger; it grows for ever, so every query names an index prefix."""

    def of_reference(self, reference_type: str, reference_id: str) -> TrackingQuerySet:
        """Every movement of one sale order, receipt, ticket item, transfer …"""
        return self.filter(reference_id=reference_id, reference_type=reference_type)

    def history_of(self, stock_id: str) -> TrackingQuerySet:
        """The movements of one stock, newest first."""
        return self.filter(stock_id=stock_id).order_by("-id")
