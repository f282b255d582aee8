"""Guards of `notifications`."""

from __future__ import annotations

from tests.proof.guard import Guard

GUARDS: list[Guard] = []
