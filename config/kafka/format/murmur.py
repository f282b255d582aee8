"""The partition of a key as every Kafka client computes it."""

from __future__ import annotations

from kafka.partitioner.default import murmur2


def partition_of(key: bytes, partitions: int) -> int:
    """Where a producer that is told no partition sends a record with this key, of so many partitions."""
    return int(murmur2(key) & 0x7FFFFFFF) % partitions
