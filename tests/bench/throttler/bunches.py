"""Bunches of notifications by HTTP: a real web server, one caller after another request or four at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count

from config.admin.levers import Operator
from notifications.api.tokens import issue
from tests.bench.figures import median
from tests.bench.leg import Plan
from tests.bench.throttler.notifications import INPUT, fresh, records
from tests.bench.worker import ROOT
from tests.processes.web import PLAIN, Site

NOTIFICATIONS, BUNCH = 2000, 100
BODY = {"recipients": [f"user-{index}@example.com" for index in range(BUNCH)], "message": {"text": "Thank you. " * 20}}
KEYS = count()


def rows(plan: Plan) -> list[dict[str, str]]:
    """All of it accepted, by the clock of the caller, connecting included."""
    token = issue("bench", Operator("bench"), rate=0, customer_id="bench")[1]
    with fresh(plan.servers) as topics, serving(topics.environment) as site:
        accepted(site, token, 1)  # its first request imports and connects
        found = {callers: [accepted(site, token, callers) for _ in range(plan.repeat)] for callers in (1, 4)}
        sent = (1 + 2 * plan.repeat) * NOTIFICATIONS
        there = sum(1 for _record in records(topics, INPUT))
    if there != sent:
        raise RuntimeError(f"{there} of {sent} notifications are in {INPUT}")
    return [
        {"callers": str(callers), f"{NOTIFICATIONS} notifications in bunches of {BUNCH}, s": median(taken)}
        for callers, taken in found.items()
    ]


def accepted(site: Site, token: str, callers: int) -> float:
    """Seconds until the last bunch is accepted."""
    keys = [f"bunch-{next(KEYS)}" for _ in range(NOTIFICATIONS // BUNCH)]
    began = time.perf_counter()
    with ThreadPoolExecutor(callers) as pool:
        statuses = {
            reply.status for reply in pool.map(lambda key: site.post("/v1/transactional", BODY, token, key), keys)
        }
    if statuses != {202}:
        raise RuntimeError(f"answers: {statuses}")
    return time.perf_counter() - began


@contextmanager
def serving(environment: dict[str, str]) -> Iterator[Site]:
    """The web server as `run_all` starts it: one process, four threads."""
    site = Site()
    command = [sys.executable, *site.program, "--access-logfile", "/dev/null"]
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **PLAIN, **environment, "SECRET_KEY": "not-a-secret" * 5}
    )
    try:
        site.wait()
        yield site
    finally:
        process.terminate()
        process.wait(30)
