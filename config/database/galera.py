"""Galera: which node of a cluster answers, in what state it is, and whether other nodes are written to as well.

Locks are local to a node, so all of Spillway writes to one. Nobody has to say which: each node counts what reaches
it from the others, whoever wrote it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from django.db.backends.base.base import BaseDatabaseWrapper

# Longer than between two reports of a worker, each of which writes: the idlest worker on another node shows.
WATCH_SECONDS = 12.0
LEAST = 3  # nodes of which one may die
COMMIT_CUT = 8  # bytes of what a node receives about its own write sets: up to which one all have applied them

VARIABLES = "SHOW GLOBAL VARIABLES WHERE variable_name IN ('wsrep_on', 'wsrep_node_name')"
STATUS = "SHOW GLOBAL STATUS WHERE variable_name LIKE 'wsrep%%'"


@dataclass(frozen=True)
class Node:
    """What the node at the other end of a connection says of itself and of its cluster."""

    name: str
    size: int  # nodes of the cluster that this one sees, itself included
    status: str  # Primary, or cut off from the majority
    state: str  # Synced, or what it is busy with
    views: int  # how often nodes have come or gone
    received: int  # bytes of write sets of other nodes; also of a few messages when nodes come or go

    @property
    def trouble(self) -> str:
        """Why it is not to be relied on now; empty if it is."""
        if self.status != "Primary":
            return f"{self.name} is cut off from most of its cluster (wsrep_cluster_status is {self.status})"
        return (
            "" if self.state == "Synced" else f"{self.name} is not synced (wsrep_local_state_comment is {self.state})"
        )

    def why_not_alone(self, before: Node) -> str:
        """What has happened since `before`, on the same connection, that only one writer may not see; empty: nothing."""
        if self.trouble:
            return self.trouble
        if self.name != before.name or self.views != before.views:
            return f"nodes of the cluster have come or gone while {before.name} was looked at: run it again"
        if number := self.received - before.received:
            return (
                f"{self.name} has received {number} bytes that were written on other nodes while it was looked at, and no "
                "lock holds these: let everything write to one node, and rotate there (docs/deploy.md, On Galera)"
            )
        return ""


def node_of(connection: BaseDatabaseWrapper) -> Node | None:
    """The node that answers; None where there is no Galera."""
    if not on_galera(connection):
        return None
    with connection.cursor() as cursor:
        cursor.execute(VARIABLES)
        name = dict(cursor.fetchall())["wsrep_node_name"]
        cursor.execute(STATUS, [])
        status = {key.lower(): value for key, value in cursor.fetchall()}
    return Node(
        name,
        int(status["wsrep_cluster_size"]),
        status["wsrep_cluster_status"],
        status["wsrep_local_state_comment"],
        int(status["wsrep_cluster_conf_id"]),
        int(status["wsrep_received_bytes"]) - COMMIT_CUT * int(status["wsrep_received"]),
    )


def on_galera(connection: BaseDatabaseWrapper) -> bool:
    """Whether the server is a node of a cluster; MySQL without Galera does not know the variable."""
    if connection.vendor != "mysql":
        return False
    with connection.cursor() as cursor:
        cursor.execute(VARIABLES)
        return dict(cursor.fetchall()).get("wsrep_on") == "ON"


def watched(connection: BaseDatabaseWrapper, seconds: float = WATCH_SECONDS) -> tuple[Node, Node] | None:
    """The node before and after some seconds; None where there is no Galera."""
    before = node_of(connection)
    if before is None:
        return None
    time.sleep(seconds)
    return before, node_of(connection) or before
