"""Levers on dead letters, one by one or a whole group: requeue, discard, resolve."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from django.db import transaction

from config.admin.levers import LEAST_REASON, Operator
from config.database.clock import database_now
from config.database.retry import Remedy
from config.processes.worker import until_it_stands
from config.redelivery import Effect, Judgement, Refusal
from outbox.audit_log import actions
from outbox.groups.models import FailureGroup
from outbox.letters import redelivery, transitions
from outbox.letters.models import DeadLetter

# -- Levers on dead letters: requeue, discard, resolve; for the admin and the command ------------------------
# Characters of the reason.
LEASTS = {"requeue": LEAST_REASON, "resolve": LEAST_REASON, "restore": LEAST_REASON, "discard": 10}
TRIES = 5  # after deadlocks
Act = Callable[..., Mapping[uuid.UUID, Effect]]


@dataclass
class RequeueResult:
    """How many letters went back in, which could not, and which failed again, with the reason."""

    requeued: int = 0
    refused: list[tuple[DeadLetter, str]] = field(default_factory=list)
    failed: list[tuple[DeadLetter, Effect]] = field(default_factory=list)  # at once; the effect names the new letter


def requeue(letter_ids: Iterable[uuid.UUID], operator: Operator, reason: str) -> RequeueResult:
    """Send letters back to the flow they came from, at their original position; each in a transaction of its own."""
    result = RequeueResult()
    for letter_id in letter_ids:
        letter, effect = _pull(letter_id, operator, "requeue", reason, redelivery.take_back)
        if letter is None or effect is None:
            continue
        if effect.state == "refused":
            result.refused.append((letter, effect.evidence))
        elif effect.state == "failed_again":
            result.failed.append((letter, effect))
        else:
            result.requeued += 1
    return result


def forecast(letter: DeadLetter) -> Judgement:
    """What its flow would do with an open letter that is requeued now; nothing is written."""
    return redelivery.foresee([letter], database_now())[letter.pk]


def discard(letter_ids: Iterable[uuid.UUID], operator: Operator, reason: str, code: str = "") -> int:
    """Discard letters; nothing is deleted. Returns how many were open.

    Raises Refusal at a letter that cannot be discarded now; those before it stay discarded.
    """
    return sum(_close(pk, operator, "discard", reason, partial(redelivery.discard, code=code)) for pk in letter_ids)


def resolve(letter_ids: Iterable[uuid.UUID], operator: Operator, reason: str) -> int:
    """Mark letters as dealt with elsewhere; returns how many were open."""
    return sum(_close(pk, operator, "resolve", reason, redelivery.resolve) for pk in letter_ids)


def restore(letter_ids: Iterable[uuid.UUID], operator: Operator, reason: str) -> int:
    """Open discarded letters again; returns how many were discarded.

    Raises Refusal at a letter whose discard cannot be undone; those before it are open again.
    """
    return sum(_close(pk, operator, "restore", reason, redelivery.restore) for pk in letter_ids)


def _close(letter_id: uuid.UUID, operator: Operator, verb: str, reason: str, act: Act) -> int:
    _letter, effect = _pull(letter_id, operator, verb, reason, act)
    if effect and effect.state == "refused":
        raise Refusal(effect.evidence)
    return int(effect is not None)


def _pull(
    letter_id: uuid.UUID, operator: Operator, verb: str, reason: str, act: Act
) -> tuple[DeadLetter | None, Effect | None]:
    """Apply a lever to one letter: effect, status, group count and audit in one transaction."""

    def unit() -> tuple[DeadLetter | None, Effect | None]:
        with transaction.atomic():
            letter = DeadLetter.objects.filter(pk=letter_id).first()
            effect = act([letter], database_now()).get(letter_id) if letter else None
            if letter and effect and effect.state != "refused":
                _record(operator, verb, letter, reason, effect)
            return letter, effect

    return until_it_stands(unit, "letter-lever", lambda failures, remedy: remedy is Remedy.RERUN and failures < TRIES)


def _record(operator: Operator, verb: str, letter: DeadLetter, reason: str, effect: Effect) -> None:
    result = effect.evidence if effect.state != "failed_again" else f"failed again: {effect.evidence}"
    after = DeadLetter.objects.filter(pk=letter.pk).values_list("status", flat=True).first()
    actions.record(
        operator, verb, f"Letter {letter}", reason=reason, result=result,
        detail={"letter": str(letter.pk), "position": letter.position}, subject_type="outbox.deadletter",
        subject_id=letter.pk, before={"status": letter.status}, after={"status": after},
    )  # fmt: skip


# -- Levers on all open letters of a group at once, as far as one request may carry them ---------------------
MOST = 500  # letters of one transaction; more are a replay batch


def resolve_groups(ids: Iterable[int], operator: Operator, reason: str) -> int:
    """Mark the open letters of groups as dealt with elsewhere; returns how many groups had any.

    Raises Refusal at a group with more than MOST; those before it stay resolved.
    """
    return sum(_resolve_one(pk, operator, reason) for pk in sorted(ids))


def _resolve_one(pk: int, operator: Operator, reason: str) -> int:
    with transaction.atomic():
        ids = DeadLetter.objects.of_group(pk).open().newest_first().values_list("pk", flat=True)
        found = list(ids[: MOST + 1])
        if len(found) > MOST:
            raise Refusal(f"it has more than {MOST} open letters: resolve them by a replay batch")
        letters = list(DeadLetter.objects.filter(pk__in=found).defer("payload", "traceback", "headers"))
        moved = len(transitions.resolve(letters, database_now()))
        if not moved:
            return 0
        group = FailureGroup.objects.get(pk=pk)
        actions.record(
            operator, "resolve", f"Group {group}", reason=reason, result="resolved", rows=moved, url=group.url,
            detail={"group": pk, "letters": moved}, subject_type="outbox.failuregroup", subject_id=pk,
        )  # fmt: skip
    return 1
