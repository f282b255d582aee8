"""The levers on dead letters: requeue, discard, resolve, restore; one by one, or all open letters of a group."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction

from config.admin.levers import LEAST_REASON, Operator
from config.database.clock import database_now
from config.letters import Effect, Judgement, Refusal
from config.processes.worker import until_it_stands
from outbox.audit_log import actions
from outbox.groups.models import FailureGroup
from outbox.letters import redelivery, transitions
from outbox.letters.models import DeadLetter

# Characters of the reason.
LEASTS = {"requeue": LEAST_REASON, "edit": 10, "resolve": LEAST_REASON, "restore": LEAST_REASON, "discard": 10}


@dataclass
class LeverOutcome:
    """How many letters a lever acted on, which it could not, and which failed again at once, with the reason."""

    acted: int = 0
    refused: list[tuple[DeadLetter, str]] = field(default_factory=list)
    failed: list[tuple[DeadLetter, Effect]] = field(default_factory=list)  # the effect names the new letter


def act(verb: str, letters: Sequence[DeadLetter], now: datetime, code: str = "") -> Mapping[uuid.UUID, Effect]:
    """Do it, in the caller's transaction; a letter that somebody else has moved meanwhile is not in the answer."""
    if verb == "requeue":
        return redelivery.take_back(letters, now)
    if verb == "discard":
        return transitions.discard(letters, now, code)
    return {"resolve": transitions.resolve, "restore": transitions.restore}[verb](letters, now)


def pull(verb: str, letter_ids: Iterable[uuid.UUID], operator: Operator, reason: str, code: str = "") -> LeverOutcome:
    """Act on letters, each in a transaction of its own: effect, status, group count and audit.

    Requeue sends a letter back to its flow at its original position; nothing is deleted by a discard, whose `code` says
    why in one word. A letter in another state is left out. A replay batch does the same chunk by chunk, at a rate.
    """
    outcome = LeverOutcome()
    for letter_id in letter_ids:
        letter, effect = _pull_one(verb, letter_id, operator, reason, code)
        if letter is None or effect is None:
            continue
        if effect.state == "refused":
            outcome.refused.append((letter, effect.evidence))
        elif effect.state == "failed_again":
            outcome.failed.append((letter, effect))
        else:
            outcome.acted += 1
    return outcome


def forecast(letter: DeadLetter) -> Judgement:
    """What its flow would do with an open letter that is requeued now; nothing is written."""
    return redelivery.foresee([letter], database_now())[letter.pk]


def _pull_one(
    verb: str, letter_id: uuid.UUID, operator: Operator, reason: str, code: str
) -> tuple[DeadLetter | None, Effect | None]:
    def unit() -> tuple[DeadLetter | None, Effect | None]:
        with transaction.atomic():
            letter = DeadLetter.objects.filter(pk=letter_id).first()
            effect = act(verb, [letter], database_now(), code).get(letter_id) if letter else None
            if letter and effect and effect.state != "refused":
                _record(operator, verb, letter, reason, effect)
            return letter, effect

    return until_it_stands(unit, "letter-lever")


def _record(operator: Operator, verb: str, letter: DeadLetter, reason: str, effect: Effect) -> None:
    after = DeadLetter.objects.filter(pk=letter.pk).values_list("status", flat=True).first()
    actions.record(
        operator, verb, f"Letter {letter}", reason=reason, result=effect.result,
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
        chosen = list(ids[: MOST + 1])
        if len(chosen) > MOST:
            raise Refusal(f"it has more than {MOST} open letters: resolve them by a replay batch")
        letters = list(DeadLetter.objects.filter(pk__in=chosen).defer("payload", "traceback", "headers"))
        moved = len(act("resolve", letters, database_now()))
        if not moved:
            return 0
        group = FailureGroup.objects.get(pk=pk)
        actions.record(
            operator, "resolve", f"Group {group}", reason=reason, result="resolved", rows=moved, url=group.url,
            detail={"group": pk, "letters": moved}, subject_type="outbox.failuregroup", subject_id=pk,
        )  # fmt: skip
    return 1
