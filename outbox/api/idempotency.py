"""Idempotency-Key: the same request again gets the first answer, also when it acts outside the database."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from django.db import transaction
from django.db.models import QuerySet

from config.database.clock import database_now
from config.database.isolation import written_elsewhere
from config.database.retry import Remedy
from config.payload import digest
from config.processes.worker import until_it_stands
from outbox.api.problems import RETRY_IN_PROGRESS, Answer, Problem
from outbox.messages.models import IdempotencyKey

# -- Idempotency-Key: the same request again gets the first answer, byte for byte, and does nothing ----------
# Key, change and answer commit together. There is no moment at which an order exists and its key does not.
# Returns the time of the change, and the function that makes it inside the transaction.
Plan = Callable[[], tuple[datetime, Callable[[], Answer]]]


@dataclass(frozen=True)
class Asked:
    """Who asked for what (`scope`: token, method, path), under which key, with which body."""

    scope: str
    key: str
    payload_hash: str

    @classmethod
    def of(cls, scope: str, key: str, body: bytes) -> Asked:
        return cls(scope, key, digest(body))


def once(asked: Asked, plan: Plan, until_done: Callable[[Callable[[], Answer]], Answer]) -> Answer:
    """Do what `plan` plans, or repeat the answer. `plan` runs outside any transaction and may be run again.

    `until_done` runs the whole attempt again while it loses races or deadlocks.

    Decisions are remembered: the change, and the refusal of an order that is unknown or in another state. After
    an answer that decided nothing (401, 422 of a value, 429, 5xx) the next request is handled anew.
    """
    return until_done(lambda: _attempt(asked, plan))


def _attempt(asked: Asked, plan: Plan) -> Answer:
    try:
        now, act = plan()
    except Problem as refusal:
        now, act = database_now(), refusal.answer
    with transaction.atomic():
        row_id = _insert(asked, now)
        if row_id is None:
            return first_answer(asked)
        answer = act()
        IdempotencyKey.objects.filter(pk=row_id).update(status_code=answer.status, answer=answer.body)
        return answer


def _insert(asked: Asked, now: datetime) -> int | None:
    """The new key's row, or None when it is known. The insert alone would wait for the first request's commit."""
    rows = IdempotencyKey.objects.filter(scope=asked.scope, key=asked.key)
    if written_elsewhere(f"{asked.scope}\n{asked.key}", rows):
        raise Problem("in_progress", retry_after=RETRY_IN_PROGRESS)
    return insert_key(asked, now, new_token())


def new_token() -> int:
    """By which whoever wrote a key knows it again."""
    return secrets.randbits(62) + 1


def insert_key(asked: Asked, now: datetime, token: int) -> int | None:
    """The row of a key that nobody else has used, None of one that is known. Waits for a transaction that has it in hand.

    Not an upsert of ours: on MariaDB and MySQL that is INSERT … SELECT, which holds the lock of the next number while
    it waits for the key. Who has the key and publishes needs a number, too, and MariaDB sees no deadlock in it.
    """
    ours = {"payload_hash": asked.payload_hash, "token": token}
    row = IdempotencyKey(scope=asked.scope, key=asked.key, created_at=now, **ours)
    IdempotencyKey.objects.bulk_create([row], ignore_conflicts=True)
    return IdempotencyKey.objects.filter(scope=asked.scope, key=asked.key, **ours).values_list("pk", flat=True).first()


def first_answer(asked: Asked) -> Answer:
    """The answer stored under the key; raises Problem: `key_reused` for another body, `in_progress` without an answer."""
    first = IdempotencyKey.objects.get(scope=asked.scope, key=asked.key)
    if first.payload_hash != asked.payload_hash:
        raise Problem("key_reused")
    if first.status_code is None:
        raise Problem("in_progress", retry_after=RETRY_IN_PROGRESS)
    return Answer(first.status_code, first.answer, replayed=True)


# -- Keyed actions outside the database: claim the key, act without a transaction, settle with the answer ------
# A process that dies in between leaves the key in progress; after a minute the same request takes it over and does
# the action again, which therefore must repeat what it did: the same ids, the same bytes. One that lived, and waited so
# long between claim and action, looks once more and leaves the action to who took over.
Result = TypeVar("Result")
TAKEN_OVER_AFTER = timedelta(seconds=60)
YOUNG = timedelta(seconds=15)  # of a claim with which an action may begin
MOST_RERUNS, MOST_LOST = 20, 3


@dataclass(frozen=True)
class KeyClaim:
    """The key is ours since `since`: only who holds that moment, with this token, settles it."""

    row_id: int
    token: int
    since: datetime


def once_outside(asked: Asked, action: Callable[[float], Answer]) -> Answer:
    """Do the action once, or repeat its answer. `action` runs outside any transaction; a Problem it raises is forgotten.

    It gets the time (monotonic) until which it may begin what cannot be taken back: whoever is frozen for longer behind
    the last look at its claim may not be the only one any more.

    Raises Problem: `in_progress` while another request does it, `key_reused` for another body.
    """
    token = new_token()  # of all attempts: one whose commit went unanswered finds its own row
    claim = _stand(lambda: _claim(asked, token))
    if isinstance(claim, Answer):
        return claim
    claimed, until = _stand(lambda: _renewed(claim))
    try:
        answer = action(until)
    except BaseException:
        # The row stays: what was done of the action may not be done with another body. The same may go on at once.
        _stand(lambda: _in_progress(claimed).update(created_at=claimed.since - TAKEN_OVER_AFTER))
        raise
    settled = _stand(lambda: _in_progress(claimed).update(status_code=answer.status, answer=answer.body))
    return answer if settled else first_answer(asked)


def _claim(asked: Asked, token: int) -> KeyClaim | Answer:
    now = database_now()
    with transaction.atomic():
        insert_key(asked, now, token)
    row = IdempotencyKey.objects.get(scope=asked.scope, key=asked.key)
    if row.payload_hash != asked.payload_hash or row.status_code is not None:
        return first_answer(asked)
    seen = KeyClaim(row.pk, row.token, row.created_at)
    if row.token == token:
        return seen
    # Two that take over see the same moment: the one whose update counts has it.
    if row.created_at > now - TAKEN_OVER_AFTER or not _in_progress(seen).update(token=token, created_at=now):
        raise _elsewhere()
    return KeyClaim(row.pk, token, now)


def _renewed(claim: KeyClaim) -> tuple[KeyClaim, float]:
    """The claim, still ours and no older than a part of its minute: who wrote it may have waited, or slept, since.

    With the time (monotonic, and of before the look) until which an action may begin: as long as that part once more.
    """
    while True:
        looked_at = time.monotonic()
        ours = IdempotencyKey.objects.filter(pk=claim.row_id, status_code=None, token=claim.token).first()
        if ours is None:
            raise _elsewhere()
        claim, now = KeyClaim(ours.pk, ours.token, ours.created_at), database_now()
        if now <= claim.since + YOUNG:
            return claim, looked_at + YOUNG.total_seconds()
        _in_progress(claim).update(created_at=now)


def _elsewhere() -> Problem:
    return Problem("in_progress", retry_after=RETRY_IN_PROGRESS)


def _in_progress(claim: KeyClaim) -> QuerySet[IdempotencyKey]:
    return IdempotencyKey.objects.filter(pk=claim.row_id, status_code=None, token=claim.token, created_at=claim.since)


def _stand(unit: Callable[[], Result]) -> Result:
    """A caller waits: of a server that is away only a lost answer is made good."""
    most = {Remedy.RERUN: MOST_RERUNS, Remedy.WAIT: MOST_LOST}
    return until_it_stands(unit, "keyed_deeds", lambda failures, remedy: failures < most[remedy])
