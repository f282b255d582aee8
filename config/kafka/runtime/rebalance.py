"""What the client calls when partitions are assigned and revoked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from config.kafka import client, internals
from config.kafka.positions import Log, TopicPartition


class Owner(Protocol):
    """Whoever reads the partitions."""

    rejoining: bool

    def assigned(self, partitions: Iterable[Any]) -> None: ...
    async def revoked(self, partitions: Iterable[Any]) -> None: ...
    def forget(self, gone: set[TopicPartition]) -> None: ...


def listener_for(owner: Owner) -> Any:
    """A listener that runs on the client's own thread, where heartbeats go on while it waits."""

    class Listener(client.kafka.AsyncConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: Any) -> None:
            owner.assigned(assigned)

        async def on_partitions_revoked(self, revoked: Any) -> None:
            await owner.revoked(revoked)

        async def on_partitions_lost(self, lost: Any) -> None:
            owner.rejoining = True
            owner.forget({(tp.topic, tp.partition) for tp in lost})

    return Listener()


def logs_of(
    consumer: Any, topics: Iterable[str], partitions: Iterable[TopicPartition]
) -> tuple[dict[str, str], dict[TopicPartition, Log]]:
    """What the broker says of the topics (their ids) and of newly assigned partitions."""
    tps = [client.TopicPartition(*tp) for tp in partitions]
    begins = consumer.beginning_offsets(tps, timeout_ms=10_000)
    ends = consumer.end_offsets(tps, timeout_ms=10_000)
    ids = {topic: internals.topic_id_of(consumer, topic) for topic in topics}
    logs = {
        (tp.topic, tp.partition): Log(ids[tp.topic], begins[tp], ends[tp], consumer.committed(tp, timeout_ms=10_000))
        for tp in tps
    }
    return ids, logs
