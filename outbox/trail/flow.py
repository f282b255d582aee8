"""The trail as the rest of Spillway sees it: its invariants, its gauge, its retention."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from config.flows import Check, Flow, Reading
from config.telemetry import metrics
from outbox.trail import retention, verify
from outbox.trail.seals import unsealed_since


class Audit(Flow):
    """Operator actions and the chain over them."""

    name = "audit"

    def gauges(self, now: datetime) -> Iterator[Reading]:
        since = unsealed_since()
        yield Reading(metrics.AUDIT_UNSEALED, max(0.0, (now - since).total_seconds()) if since else 0.0)

    def verify_payloads(self) -> Iterator[Check]:
        return verify.checks()

    def sweep(self, now: datetime) -> int:
        return retention.sweep(now)
