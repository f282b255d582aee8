"""The daily round: partitions, and what outlived its retention without standing in one."""

from __future__ import annotations

from config.clock import database_now
from config.flows import flows
from config.partitions import Plan, rotate


def rotate_and_sweep(*, dry_run: bool = False, no_drop: bool = False) -> tuple[list[Plan], int]:
    """Rotate every partitioned table, then let each flow sweep; returns the plans and how many rows went."""
    plans = rotate(dry_run, no_drop)
    if dry_run or no_drop:
        return plans, 0
    now = database_now()
    return plans, sum(flow.sweep(now) for flow in flows())
