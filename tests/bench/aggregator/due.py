"""Finding due buckets behind very different backlogs: our index beside the seed's GROUP BY."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import transaction

from buffer.flush.claim import FULL_BUCKETS_A_ROUND, _lock_candidates, _locked
from buffer.streams import chosen
from config.database.clock import database_now
from tests.bench import databases
from tests.bench.rows import fill, moment

EVENTS_A_BUCKET = 100
DUE = 10
SEED = (
    "SELECT location_id FROM buffer_bufferedevent WHERE status = 'pending' GROUP BY location_id "
    "HAVING MAX(updated_at) < %s OR MIN(created_at) < %s"
)


def measure(pending: int) -> dict[str, float]:
    """Milliseconds to find (and lock) ten due buckets; medians."""
    stream = chosen(None)[0]
    fill(stream, pending // EVENTS_A_BUCKET, EVENTS_A_BUCKET, due=DUE)
    now = database_now()
    times = [moment(now - timedelta(minutes=minutes)) for minutes in (5, 30)]
    return {
        "one look": milliseconds(lambda: _locked(stream.name, now, FULL_BUCKETS_A_ROUND), 300),
        "claim": milliseconds(lambda: _lock_candidates(stream.name, now), 300),
        "seed": milliseconds(lambda: databases.rows(SEED, times), 5),
    }


def milliseconds(look: Callable[[], Any], times: int) -> float:
    return statistics.median(timed(look) for _ in range(times))


def timed(look: Callable[[], Any]) -> float:
    """Without begin and commit, which the claim shares with its other work."""
    with transaction.atomic():
        started = time.perf_counter()
        look()
        return (time.perf_counter() - started) * 1000
