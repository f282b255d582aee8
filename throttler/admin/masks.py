"""Payloads for those who may not see them: the shape stays, what a person wrote does not. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

DOTS = "••••"
READABLE = ("notification_id", "customer_id", "created_at", "ttl_seconds")
PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,39}", re.ASCII)
MOST_DEPTH = 100


def masked(payload: bytes) -> str:
    """The JSON with dots for all values but those that name or date the message; nothing of what is no JSON."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        return DOTS
    if not isinstance(value, dict):
        return json.dumps(_hidden(value), ensure_ascii=False)
    return json.dumps(
        {_name(name): part if _readable(name, part) else _hidden(part) for name, part in value.items()},
        ensure_ascii=False,
    )


def _readable(name: str, part: Any) -> bool:
    return name in READABLE and not isinstance(part, dict | list)


def _hidden(value: Any, depth: int = 0) -> Any:
    if isinstance(value, dict) and depth < MOST_DEPTH:
        return {_name(name): _hidden(part, depth + 1) for name, part in value.items()}
    if isinstance(value, list) and depth < MOST_DEPTH:
        return [_hidden(part, depth + 1) for part in value]
    return DOTS


def _name(name: str) -> str:
    """A key that a program gave; anything else may be somebody's address."""
    return name if PLAIN_NAME.fullmatch(name) else DOTS
