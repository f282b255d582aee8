"""What is wrong with the keyspace of the overflow store, as the driver's metadata shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from config.environment.cassandra_url import CassandraPlace


def faults_of(place: CassandraPlace, metadata: Any) -> Iterator[str]:
    """One line for each; `metadata` is the cluster's."""
    strategy = metadata.keyspaces[place.keyspace].replication_strategy
    copies = copies_of(strategy, place.datacenter)
    if copies != place.replication:
        yield (
            f"keyspace {place.keyspace} keeps {copies} copies, CASSANDRA_URL says replication={place.replication}: "
            "alter the keyspace and repair it, or the URL"
        )
    nodes = [host for host in metadata.all_hosts() if place.datacenter in ("", host.datacenter)]
    if len(nodes) < copies:
        yield f"{copies} copies on {len(nodes)} nodes: some are never made"
    down = [str(host.address) for host in nodes if host.is_up is False]
    if down:
        yield f"down: {', '.join(sorted(down))}"


def copies_of(strategy: Any, datacenter: str) -> int:
    """How many copies there are, of a datacenter when it is named."""
    by_name = getattr(strategy, "dc_replication_factors", None)
    if by_name is None:
        return int(strategy.replication_factor)
    return int(by_name.get(datacenter, 0) if datacenter else min(by_name.values(), default=0))


def condition(place: CassandraPlace, metadata: Any, milliseconds: float) -> str:
    versions = {host.release_version for host in metadata.all_hosts() if host.release_version}
    return f"Cassandra {'/'.join(sorted(versions))} at {place} answers in {milliseconds:.1f} ms"
