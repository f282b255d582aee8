"""Levers on dead letters: requeue, discard, resolve; for the admin and the command."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from django.db import DatabaseError, transaction
from django.utils.text import capfirst

from config.admin.levers import LEAST_REASON
from config.database.clock import database_now
from config.database.errors import Remedy, remedy_for
from config.flows import Forecast, Refusal, flow_of
from config.telemetry.redaction import said
from outbox.bookkeeping import audit
from outbox.bookkeeping.audit import Operator
from outbox.letters.burial import STOPPED
from outbox.letters.models import DeadLetter, FailureGroup

OPEN = DeadLetter.Status.OPEN
LEASTS = {"requeue": LEAST_REASON, "resolve": LEAST_REASON, "discard": 10}  # characters of the reason


@dataclass
class RequeueResult:
    """How many letters went back in, and which could not, with the reason."""

    requeued: int = 0
    refused: list[tuple[DeadLetter, str]] = field(default_factory=list)

    def refuse(self, letter_id: uuid.UUID, why: str) -> None:
        if letter := DeadLetter.objects.filter(pk=letter_id).first():
            self.refused.append((letter, why))


def requeue(letter_ids: Iterable[uuid.UUID], operator: Operator, reason: str) -> RequeueResult:
    """Send letters back to the flow they came from, at their original position."""
    result = RequeueResult()
    for letter_id in letter_ids:
        try:
            result.requeued += _pull(letter_id, operator, "requeue", DeadLetter.Status.REQUEUED, reason, _send_back)
        except Refusal as refusal:
            result.refuse(letter_id, str(refusal))
        except DatabaseError as error:
            if remedy_for(error) is not Remedy.DATA:
                raise
            result.refuse(letter_id, f"the database still refuses it: {said(error)[:200]}")
    return result


def forecast(letter: DeadLetter) -> Forecast | None:
    """What its flow would do with an open letter that is requeued now; nothing is written."""
    try:
        _refuse_stopped(letter)
        return flow_of(letter.source).forecast(letter)
    except Refusal as refusal:
        return Forecast("warn", "It would be refused now.", f"{capfirst(str(refusal))}.")


def discard(letter_ids: Iterable[uuid.UUID], operator: Operator, reason: str) -> int:
    """Discard letters; nothing is deleted. Returns how many were open.

    Raises Refusal at a letter that cannot be discarded now; those before it stay discarded.
    """
    status = DeadLetter.Status.DISCARDED
    return sum(_pull(pk, operator, "discard", status, reason, _close) for pk in letter_ids)


def resolve(letter_ids: Iterable[uuid.UUID], operator: Operator, reason: str) -> int:
    """Mark letters as dealt with elsewhere; returns how many were open."""
    status = DeadLetter.Status.RESOLVED
    return sum(_pull(pk, operator, "resolve", status, reason, lambda letter, now: "resolved") for pk in letter_ids)


def _send_back(letter: DeadLetter, now: datetime) -> str:
    _refuse_stopped(letter)
    return flow_of(letter.source).requeue(letter, now)


def _refuse_stopped(letter: DeadLetter) -> None:
    if letter.step == STOPPED:
        raise Refusal("a stopped partition is no record: start its worker with --accept-reset, then resolve")


def _close(letter: DeadLetter, now: datetime) -> str:
    return flow_of(letter.source).discard(letter, now)


def _pull(
    letter_id: uuid.UUID,
    operator: Operator,
    verb: str,
    status: str,
    reason: str,
    act: Callable[[DeadLetter, datetime], str],
) -> int:
    """Apply a lever to one letter: effect, status, group count and audit in one transaction."""
    with transaction.atomic():
        # Locked, so that a double click, or two people, act once.
        letter = DeadLetter.objects.select_for_update().open().filter(pk=letter_id).first()
        if letter is None:
            return 0
        now = database_now()
        note = act(letter, now)
        moved = DeadLetter.objects.filter(pk=letter_id).move(OPEN, status, now, note)
        FailureGroup.objects.filter(pk=letter.group_id).shift_open(-moved)
        about = {"letter": str(letter_id), "position": letter.position}
        audit.record(operator, verb, f"Letter {letter}", reason=reason, result=note, rows=moved, detail=about)
    return moved
