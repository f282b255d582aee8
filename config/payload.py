"""Payloads for people's eyes: JSON indented, anything else as text that hides no byte."""

from __future__ import annotations

import json

MOST = 65_536


def pretty(payload: bytes | memoryview | str | None) -> str:
    """Readable text of a payload; what does not fit on a page is cut, and says so."""
    if payload is None:
        return "null: a tombstone"
    text = payload if isinstance(payload, str) else bytes(payload).decode("utf-8", "backslashreplace")
    if len(text) > MOST:
        return f"{text[:MOST]}\n… {len(text) - MOST:,} more characters"
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        # Control characters would vanish or move the text; here they are what somebody is looking for.
        return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)
