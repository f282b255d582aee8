"""Idempotency-Key: the same request again gets the first answer, byte for byte, and does nothing.

Key, change and answer commit together. There is no moment at which an order exists and its key does not.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from config.database.clock import database_now
from config.database.contention import written_elsewhere
from config.digest import digest
from outbox.api.problems import RETRY_IN_PROGRESS, Answer, Problem
from outbox.messages.models import IdempotencyKey

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
    return insert_key(asked, now)


def insert_key(asked: Asked, now: datetime) -> int | None:
    """The row of a key that nobody has used, None of one that is known. Waits for a transaction that has it in hand.

    Not an upsert of ours: on MariaDB and MySQL that is INSERT … SELECT, which holds the lock of the next number while
    it waits for the key. Who has the key and publishes needs a number, too, and MariaDB sees no deadlock in it.
    """
    ours = {"payload_hash": asked.payload_hash, "token": secrets.randbits(62) + 1}
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
