"""JSON with a schema registry: the frame is taken off; the gate judges what stands in it."""

from __future__ import annotations

from config.formats import Opener
from config.formats.registry import Readers


def jsonschema() -> Opener:
    """`"FORMAT": "jsonschema"`. The schema must be there and be JSON; what is required is what the stream requires."""
    return Readers("JSON", lambda _schema: bytes).read
