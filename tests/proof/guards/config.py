"""Guards of `config`."""

from __future__ import annotations

from tests.proof.guard import Guard

GUARDS: list[Guard] = []
