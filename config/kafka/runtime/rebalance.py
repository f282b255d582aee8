"""What the client calls when partitions are assigned and revoked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from config.kafka import client


class Owner(Protocol):
    """Whoever reads the partitions."""

    def assigned(self, partitions: Iterable[Any]) -> None: ...
    async def revoked(self, partitions: Iterable[Any]) -> None: ...
    def lost(self, partitions: Iterable[Any]) -> None: ...


def listener_for(owner: Owner) -> Any:
    """A listener that runs on the client's own thread, where heartbeats go on while it waits."""

    class Listener(client.kafka.AsyncConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: Any) -> None:
            owner.assigned(assigned)

        async def on_partitions_revoked(self, revoked: Any) -> None:
            await owner.revoked(revoked)

        async def on_partitions_lost(self, lost: Any) -> None:
            owner.lost(lost)

    return Listener()
