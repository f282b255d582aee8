"""Promises messages to Spillway in the caller's transaction: `from spillway_client import publish`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spillway_client.outbox import IdempotencyConflict, publish

__all__ = ["IdempotencyConflict", "publish"]


def __getattr__(name: str) -> object:
    """Found when it is used: Django imports this package before it is ready for models."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from spillway_client import outbox

    return getattr(outbox, name)
