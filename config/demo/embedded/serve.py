"""The embedded broker as a process of its own."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping

from django.conf import settings

from config.demo.embedded.broker import EmbeddedKafka
from config.kafka.topics import topic_name
from config.processes.loop import stop_on_signal, watch_parent


def serve(
    port: int | None, topics: Mapping[str, int], ready: Callable[[str], None], *, with_parent: bool = False
) -> None:
    """Run the broker until SIGTERM or SIGINT, or, `with_parent`, until the parent process is gone.

    `topics` is {name on the broker: partitions}; `ready` gets host:port once clients can connect.
    Raises EmbeddedKafkaError.
    """
    with stop_on_signal() as stop, EmbeddedKafka(port) as kafka:
        if with_parent:
            watch_parent(stop.set)
        for name, partitions in topics.items():
            kafka.create_topic(name, partitions)
        ready(kafka.bootstrap_servers)
        stop.wait()


def project_topics() -> dict[str, int]:
    """Every topic in KAFKA_TOPICS, as `serve` takes them."""
    return {topic_name(name): entry["partitions"] for name, entry in settings.KAFKA_TOPICS.items()}


def port_argument(text: str) -> int:
    """A TCP port; raises ArgumentTypeError."""
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ArgumentTypeError(f"{text!r} is not a port between 1 and 65535")
    return int(text)


def topic_argument(text: str) -> tuple[str, int]:
    """NAME:PARTITIONS; raises ArgumentTypeError."""
    name, _, partitions = text.rpartition(":")
    if not name or not partitions.isdecimal() or not 0 < int(partitions) < 1000:
        raise ArgumentTypeError(f"{text!r} is not NAME:PARTITIONS with 1 to 999 partitions")
    return name, int(partitions)
