"""Payloads as people read them: JSON is indented, anything else is text, and no byte is hidden."""

from __future__ import annotations

import json
import re

from config.telemetry.visible import visible

MOST = 65_536
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
INDENT = "  "
LINE = 72


def pretty(payload: bytes | memoryview | str | None) -> str:
    """The payload as text; longer than a page it is cut, and a line says so."""
    if payload is None:
        return "null: a tombstone"
    text = payload if isinstance(payload, str) else bytes(payload).decode("utf-8", "backslashreplace")
    if len(text) > MOST:
        return f"{visible(text[:MOST])}\n… {len(text) - MOST:,} more characters"
    return visible(indented(text) if is_json(text) else text)


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def indented(text: str) -> str:
    """Indent without parsing: a key that occurs twice, or a number written as 1.50, stays as it was sent."""
    parts: list[str] = []
    depth, before = 0, ""
    for word in folded(TOKEN.findall(text)):
        if word in "}]":
            depth -= 1
            parts.append("" if before in "{[" else "\n" + INDENT * depth)
        elif before and before in "{[,":
            parts.append("\n" + INDENT * depth)
        elif before == ":":
            parts.append(" ")
        parts.append(word)
        depth += word in "{["
        before = word
    return "".join(parts)


def folded(words: list[str]) -> list[str]:
    """Innermost objects and lists that fit on a line become one token, as a person would write them."""
    result: list[str] = []
    start = -1
    for word in words:
        if word in "{[":
            start = len(result)
        result.append(word)
        if word in "}]":
            inner = "".join(f"{part} " if part in ",:" else part for part in result[start:])
            if start >= 0 and len(inner) <= LINE:
                result[start:] = [inner]
            start = -1
    return result
