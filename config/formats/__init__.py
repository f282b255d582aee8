"""What records are written in: each format opens a record's bytes into the JSON that the gate reads.

A format is a pure function of the bytes and of schemas that never change, so a redelivered record has the same digest.
Nothing is encoded: an edited copy of a dead letter is JSON, and goes to the gate as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from config.gate import Gate

# Of a record's value; raises InvalidRecord, or RegistryUnavailable for a registry that has to be waited for.
Opener = Callable[[bytes], bytes]
JSON = "json"
REGISTERED = ("avro", "protobuf", "jsonschema")  # those whose schemas stand in a registry


def in_words(entry: Mapping[str, Any], value: bytes) -> str:
    """`Avro, schema 7`: what a record of an entry is written in; empty for JSON."""
    name = entry.get("FORMAT", JSON)
    if name == JSON:
        return ""
    framed = len(value) > 4 and value[0] == 0
    return f"{name.capitalize()}, schema {int.from_bytes(value[1:5], 'big')}" if framed else name.capitalize()


def shown(gate: Gate[Any], entry: Mapping[str, Any], value: bytes) -> tuple[bytes, str]:
    """What a page shows of a record that is not JSON: it as JSON, and `Avro, schema 7`; empty where it cannot be opened."""
    opened = gate.readable(value)
    return (opened, in_words(entry, value)) if opened and opened is not value else (b"", "")


def opener_of(entry: Mapping[str, Any]) -> Opener | None:
    """How the records of an entry of STREAMS, MOVEMENTS or TOPIC_FORMATS are opened; None for JSON, which needs no opening.

    FORMAT names a function of `settings.FORMATS`, which is given FORMAT_OPTIONS.
    """
    name = entry.get("FORMAT", JSON)
    if name == JSON:
        return None
    opener: Opener = import_string(settings.FORMATS[name])(**entry.get("FORMAT_OPTIONS", {}))
    return opener


def entry_of(topic: str) -> Mapping[str, Any]:
    """What TOPIC_FORMATS says of a topic, by its contract name or its name on the broker."""
    entry: Mapping[str, Any] = settings.TOPIC_FORMATS.get(topic.removeprefix(settings.KAFKA_TOPIC_PREFIX), {})
    return entry


@cache
def opener_for(topic: str) -> Opener | None:
    """How the records of a topic are opened that is no stream and moves no stock."""
    return opener_of(entry_of(topic))


def formatted() -> dict[str, Mapping[str, Any]]:
    """The entries whose records are not JSON, by the setting that says so: `STREAMS['scans']`."""
    streams = {f"STREAMS[{name!r}]": entry for name, entry in settings.STREAMS.items()}
    movements = {
        f"MOVEMENTS[{name!r}]": entry for name, entry in settings.MOVEMENTS.items() if not isinstance(entry, str)
    }
    topics = {f"TOPIC_FORMATS[{topic!r}]": entry for topic, entry in settings.TOPIC_FORMATS.items()}
    return {
        place: entry for place, entry in (streams | movements | topics).items() if entry.get("FORMAT", JSON) != JSON
    }
