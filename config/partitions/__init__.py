"""Tables partitioned by time: a spec per table, a plan that explains itself, one driver per database."""

from config.partitions.rotation import (
    PartitionError,
    Plan,
    Step,
    apply,
    configured,
    days_left,
    ensure_after_migrate,
    ensure_partitions,
    living_keys,
    plan_for,
    rotate,
    storable,
)
from config.partitions.spec import Keep, Partition, PartitionSpec

__all__ = [
    "Keep",
    "Partition",
    "PartitionError",
    "PartitionSpec",
    "Plan",
    "Step",
    "apply",
    "configured",
    "days_left",
    "ensure_after_migrate",
    "ensure_partitions",
    "living_keys",
    "plan_for",
    "rotate",
    "storable",
]
