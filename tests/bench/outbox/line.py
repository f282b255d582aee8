"""Mails of now beside a replay of many mails: how long one of them waits behind those that come back."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config.admin.levers import Operator
from config.database.clock import database_now
from notifications.orders import changes
from outbox.letters.filters import Filter
from outbox.letters.models import DeadLetter
from outbox.replay_batches import requests
from outbox.replay_batches.models import ReplayBatch
from tests.bench.figures import at, number
from tests.bench.leg import Plan
from tests.crash.platform import Platform
from tests.crash.wire import wait_for
from tests.notifications.smtp_sink import Sink

MAILS, FRESH = 20_000, 20
RATE, PAUSE = 50.0, 4.0  # letters a second; seconds between two mails of now
REFUSED = "550 5.7.1 Nobody of that name here"
WHO, REASON = Operator("bench"), "the server accepts again"


def rows(plan: Plan) -> list[dict[str, str]]:
    count = MAILS // 10 if plan.quick else MAILS
    with Sink() as sink, working(sink) as platform:
        refused(platform, sink, count)
        for command in ("relay_outbox", "replay_letters"):
            platform.start(command)
        batch = begun()
        turns = min(FRESH, int(count / RATE / PAUSE / 2))  # while it goes on
        waited = sorted(seconds_of(sink, turn) for turn in range(turns))
        batch.refresh_from_db()
        took = (database_now() - batch.started_at).total_seconds() if batch.started_at else 0.0
        requests.cancel(batch.pk, WHO)
        for worker in platform.workers:
            worker.stop(60)
    return [{
        "mails that come back": f"{count:,}", "replayed/s": number(batch.verified / took),
        "a mail of now waits, s, p50": number(at(waited, 0.5)), "the longest, s": number(waited[-1]),
    }]  # fmt: skip


@contextmanager
def working(sink: Sink) -> Iterator[Platform]:
    """Processes that send to this server."""
    environment = {
        "EMAIL_CHANNEL": "smtp", "EMAIL_URL": f"smtp://127.0.0.1:{sink.port}", "EMAIL_WINDOW": "10",
        "LOG_LEVEL": "WARNING",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as directory, Platform(Path(directory), environment) as platform:
        yield platform


def refused(platform: Platform, sink: Sink, count: int) -> None:
    """So many letters, by a server that refuses every recipient, and takes them from then on."""
    for turn in range(count):
        sell(f"old.{turn}@example.com")
    sink.refuse = lambda recipient: REFUSED
    platform.manage("relay_outbox", "--until-idle", "3", OUTBOX_PAUSE_AFTER_REFUSALS="0")  # a pause would end it
    sink.refuse = lambda recipient: ""
    if (there := DeadLetter.objects.open().count()) != count:
        raise RuntimeError(f"{there} of {count} letters")


def sell(address: str) -> None:
    changes.change(changes.create(address, 1999, "EUR", database_now()).pk, "pay")


def begun() -> ReplayBatch:
    """A replay of all of them, counted by the worker, whose first letters are on their way."""
    batch = requests.draft("requeue", Filter(source="outbox"), WHO)
    state = ReplayBatch.objects.filter(pk=batch.pk)
    wait_for(lambda: state.filter(state="previewed").exists(), 300, "the preview")
    batch.refresh_from_db()
    requests.confirm(batch.pk, WHO, REASON, typed=str(batch.eligible), canary=0, rate=RATE)
    state.update(hold_until=database_now(), ramp_from=None)
    wait_for(lambda: state.filter(verified__gt=0).exists(), 60, "the first proof")
    batch.refresh_from_db()
    return batch


def seconds_of(sink: Sink, turn: int) -> float:
    """From the payment to the server's acceptance."""
    time.sleep(PAUSE)
    address, began = f"fresh.{turn}@example.com", time.monotonic()
    sell(address)
    wait_for(lambda: any(mail["to"] == address for mail in sink.accepted[-2000:]), 300, address, pause=0.01)
    return time.monotonic() - began
