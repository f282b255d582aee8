"""How soon pause and cancel hold: a worker in a process of its own at full speed, and one who presses the button."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.db.models import Max, QuerySet

from config.admin.levers import Operator
from config.database.clock import database_now
from outbox.letters.filters import Filter
from outbox.replay_batches import requests
from outbox.replay_batches.models import ReplayBatch, ReplayItem
from tests.bench import worker
from tests.crash.wire import wait_for

WHO, REASON = Operator("bench"), "the cause is mended"
PAUSES = 3
AT_WORK = 1_500  # letters after which its chunks have their full size
WATCHED = 3.0  # seconds after the answer, in which nothing may be taken back
LETTERS = 6_000  # that are taken back meanwhile, about
UNTOUCHED = ("eligible", "skipped", "left")


def held(source: str) -> dict[str, str]:
    """The longest of three pauses, and a cancel; the rest of the letters is left as it is."""
    with worker.running("replay_letters", "--metrics-port", "0", LOG_LEVEL="ERROR"):
        batch = begun(source)
        pauses = []
        for _ in range(PAUSES):
            pauses.append(holds(batch, lambda: requests.pause(batch.pk, WHO)))
            requests.resume(batch.pk, WHO)
        cancelled = holds(batch, lambda: requests.cancel(batch.pk, WHO))
        wait_for(lambda: not again(batch).eligible, 60, "the rest was left")
    return {"pause holds after": f"{max(pauses):.0f} ms", "cancel holds after": f"{cancelled:.0f} ms"}


def begun(source: str) -> ReplayBatch:
    batch = requests.draft("requeue", Filter(source=source), WHO)
    wait_for(lambda: again(batch).state == "previewed", 120, "a preview")
    requests.confirm(batch.pk, WHO, REASON, typed=str(batch.eligible), canary=0)
    requests.start_now(batch.pk, WHO)
    return batch


def holds(batch: ReplayBatch, press: Callable[[], Any]) -> float:
    """Milliseconds, by the database's clock, from the press until the last letter was taken back or the answer came."""
    before = again(batch).acted_on
    wait_for(lambda: again(batch).acted_on >= before + AT_WORK, 60, "a batch at full speed")
    pressed = database_now()
    press()
    answered = database_now()
    out = taken(batch).count()
    time.sleep(WATCHED)
    if later := taken(batch).count() - out:
        raise RuntimeError(f"{later} letters were taken back after the answer")
    last: datetime = taken(batch).aggregate(last=Max("changed_at"))["last"]
    return 1000 * (max(last, answered) - pressed).total_seconds()


def taken(batch: ReplayBatch) -> QuerySet[ReplayItem]:
    return ReplayItem.objects.of(batch).exclude(state__in=UNTOUCHED)


def again(batch: ReplayBatch) -> ReplayBatch:
    batch.refresh_from_db()
    return batch
