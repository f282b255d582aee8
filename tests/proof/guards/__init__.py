"""The guards that keep the promises, by app."""

from __future__ import annotations

from tests.proof.guard import Guard
from tests.proof.guards import (
    buffer,
    config,
    ledger,
    notifications,
    outbox,
    outbox_letters,
    outbox_replays,
    throttler,
    throttler_worker,
)


def everything() -> list[Guard]:
    return [
        *config.GUARDS,
        *outbox.GUARDS,
        *outbox_letters.GUARDS,
        *outbox_replays.GUARDS,
        *buffer.GUARDS,
        *ledger.GUARDS,
        *throttler.GUARDS,
        *throttler_worker.GUARDS,
        *notifications.GUARDS,
    ]
