"""What records are written in: each format opens a record's bytes into the JSON that the gate reads.

A format is a pure function of the bytes and of schemas that never change, so a redelivered record has the same digest.
Nothing is encoded: an edited copy of a dead letter is JSON, and goes to the gate as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

# Of a record's value; raises InvalidRecord, or RegistryUnavailable for a registry that has to be waited for.
Opener = Callable[[bytes], bytes]
JSON = "json"


def opener_of(entry: Mapping[str, Any]) -> Opener | None:
    """How the records of an entry of STREAMS or MOVEMENTS are opened; None for JSON, which needs no opening.

    FORMAT names a function of `settings.FORMATS`, which is given FORMAT_OPTIONS.
    """
    name = entry.get("FORMAT", JSON)
    if name == JSON:
        return None
    opener: Opener = import_string(settings.FORMATS[name])(**entry.get("FORMAT_OPTIONS", {}))
    return opener
