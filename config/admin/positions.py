"""Search by topic/partition/offset: no table has an index of positions, so Kafka is asked what lies there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from config.flows import flows
from config.gate import InvalidRecord
from config.kafka.client import KafkaError
from config.kafka.reader import record_at

POSITION = re.compile(r"(?P<topic>[\w.-]+)/(?P<partition>\d{1,9})/(?P<offset>\d{1,18})", re.ASCII)


class LogPosition(NamedTuple):
    """A position in a topic."""

    topic: str
    partition: int
    offset: int


def place_of(key: str) -> LogPosition | None:
    """The position that was typed, or None."""
    found = POSITION.fullmatch(key)
    return LogPosition(found["topic"], int(found["partition"]), int(found["offset"])) if found else None


def keys_at(place: LogPosition) -> tuple[Sequence[str], str]:
    """What the record at a position is about, as the search knows it; and why nothing is, in words."""
    for flow in flows():
        if (about := flow.searched().get(place.topic)) is None:
            continue
        try:
            record = record_at(*place)
            return (about(record), "") if record else ((), "Kafka has no record there, or has it no longer.")
        except InvalidRecord:
            return (), "The record there cannot be read; if it was, it is a dead letter."
        except KafkaError:
            return (), "Kafka does not answer, and without it only dead letters are found by their position."
    return (), "No flow reads or writes this topic."
