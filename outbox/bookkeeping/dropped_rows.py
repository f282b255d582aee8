"""Counts of rows that were dropped with their partitions, so that `verify` still adds up."""

from __future__ import annotations

from collections.abc import Mapping

from config.partitions import Partition, PartitionSpec, living_keys
from outbox.bookkeeping.models import FlowCounter

SCOPE = "dropped:"


def record(using: str, partition: Partition, counts: Mapping[tuple[str, str], int]) -> None:
    """Store `{(flow, status): rows}` under the partition's key, in the guarded section of the drop.

    Set, not added: a drop that crashed half-way is recorded again by the next run.
    """
    scope = f"{SCOPE}{partition.key}"
    recorded = FlowCounter.objects.using(using)
    recorded.filter(scope=scope).delete()
    recorded.bulk_create(
        FlowCounter(flow=flow, scope=scope, name=f"dropped_{status}", value=number)
        for (flow, status), number in counts.items()
    )


def dropped_rows(flow: str, spec: PartitionSpec, *statuses: str) -> int:
    """How many rows of a flow (with these statuses) left with partitions of `spec`; those that still stand do not count."""
    living = {f"{SCOPE}{key}" for key in living_keys(spec)}
    rows = FlowCounter.objects.filter(flow=flow, scope__startswith=SCOPE)
    if statuses:
        rows = rows.filter(name__in=[f"dropped_{status}" for status in statuses])
    return sum(value for scope, value in rows.values_list("scope", "value") if scope not in living)
