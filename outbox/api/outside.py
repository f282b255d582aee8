"""Keyed deeds outside the database: claim the key, act without a transaction, settle with the answer.

A process that dies in between leaves the key in progress; after a minute the same request takes it over and does
the deed again, which therefore must repeat what it did: the same ids, the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from django.db import transaction
from django.db.models import QuerySet

from config.database.clock import database_now
from config.database.errors import Remedy
from config.processes.loop import until_it_stands
from outbox.api.idempotency import Asked, first_answer, insert_key
from outbox.api.problems import RETRY_IN_PROGRESS, Answer, Problem
from outbox.messages.models import IdempotencyKey

Result = TypeVar("Result")
TAKEN_OVER_AFTER = timedelta(seconds=60)
MOST_RERUNS = 20


@dataclass(frozen=True)
class KeyClaim:
    """The key is ours since `since`: only who holds that moment settles it."""

    row_id: int
    since: datetime


def once_outside(asked: Asked, deed: Callable[[], Answer]) -> Answer:
    """Do the deed once, or repeat its answer. `deed` runs outside any transaction; a Problem it raises is forgotten.

    Raises Problem: `in_progress` while another request does it, `key_reused` for another body.
    """
    claimed = _stand(lambda: _claim(asked))
    if isinstance(claimed, Answer):
        return claimed
    try:
        answer = deed()
    except BaseException:
        # The row stays: what was done of the deed may not be done with another body. The same may go on at once.
        _stand(lambda: _in_progress(claimed).update(created_at=claimed.since - TAKEN_OVER_AFTER))
        raise
    settled = _stand(lambda: _in_progress(claimed).update(status_code=answer.status, answer=answer.body))
    return answer if settled else first_answer(asked)


def _claim(asked: Asked) -> KeyClaim | Answer:
    now = database_now()
    with transaction.atomic():
        inserted = insert_key(asked, now)
    if inserted is not None:
        return KeyClaim(inserted, now)
    row = IdempotencyKey.objects.get(scope=asked.scope, key=asked.key)
    if row.payload_hash != asked.payload_hash or row.status_code is not None:
        return first_answer(asked)
    seen = KeyClaim(row.pk, row.created_at)
    # Two that take over see the same moment: the one whose update counts has it.
    if row.created_at > now - TAKEN_OVER_AFTER or not _in_progress(seen).update(created_at=now):
        raise Problem("in_progress", retry_after=RETRY_IN_PROGRESS)
    return KeyClaim(row.pk, now)


def _in_progress(claim: KeyClaim) -> QuerySet[IdempotencyKey]:
    return IdempotencyKey.objects.filter(pk=claim.row_id, status_code=None, created_at=claim.since)


def _stand(unit: Callable[[], Result]) -> Result:
    return until_it_stands(
        unit, "keyed_deeds", lambda failures, remedy: remedy is Remedy.RERUN and failures < MOST_RERUNS
    )
