"""JSON as text: what goes into statements, stored messages and answers."""

from __future__ import annotations

from typing import Any

import msgspec


def as_json(value: Any) -> str:
    """`value` in as few characters as JSON needs; sets become arrays."""
    return msgspec.json.encode(value).decode()
