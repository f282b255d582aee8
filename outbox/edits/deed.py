"""Requeues an edited copy in place of its letter: effect, state, revision and action in one transaction."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from config.admin import humanize
from config.admin.levers import Operator
from config.database.clock import database_now
from config.database.errors import Remedy
from config.digest import digest
from config.flows import Effect, Refusal
from config.processes.loop import until_it_stands
from outbox.edits.copies import copy_of, examine, why_not
from outbox.letters import proof
from outbox.letters.edges import Status, locked
from outbox.letters.models import DeadLetter, PayloadRevision
from outbox.trail import audit
from outbox.trail.models import OperatorAction, verb_in_words
from outbox.trail.reveal import HIDE, REVEAL

VERB = "edit_and_requeue"
LEAST_REASON = 10
TRIES = 5  # after deadlocks
LETTER = "outbox.deadletter"
NO_DEEDS = (REVEAL, HIDE, "refused")  # they change nothing of a letter
FASTER = "Somebody was faster. {} Nothing of yours was sent."


def requeue_copy(letter_id: UUID, text: str, seen: int, operator: Operator, reason: str) -> Effect:
    """Give the copy to the letter's flow; `seen` is the number of edits that the editor knew of.

    Raises Refusal, and nothing was written, when somebody was faster, or when gate or flow do not take the copy now.
    """

    def unit() -> Effect:
        with transaction.atomic():
            return _requeue(letter_id, text, seen, operator, reason)

    return until_it_stands(unit, "letter-edit", lambda failures, remedy: remedy is Remedy.RERUN and failures < TRIES)


def _requeue(letter_id: UUID, text: str, seen: int, operator: Operator, reason: str) -> Effect:
    mine = locked([letter_id], Status.OPEN)
    letter = DeadLetter.objects.filter(pk=letter_id).first()
    if letter is None:
        raise Refusal("The letter is gone.")
    number = PayloadRevision.objects.last_number(letter_id)
    if not mine or number != seen:
        raise Refusal(FASTER.format(who_was_faster(letter)))
    if problem := why_not(letter):
        raise Refusal(problem)
    now = database_now()
    copy = copy_of(letter, text)
    found = examine(letter, text, now)
    if not found.may_go:
        raise Refusal("The copy cannot be requeued as it is now: check it again.")
    effect = proof.take_back([copy], now)[letter_id]
    if effect.state == "refused":
        raise Refusal(f"It was refused: {effect.evidence}.")
    _record(letter, copy, operator, reason, effect, now)
    return effect


def _record(
    letter: DeadLetter, copy: DeadLetter, operator: Operator, reason: str, effect: Effect, now: datetime
) -> None:
    """The revision, which keeps the payload as long as the letter is kept; and the action, which has none."""
    payload = bytes(copy.payload or b"")
    digests = digest(bytes(letter.payload or b"")), digest(payload)
    PayloadRevision.objects.create(
        letter=letter.pk, number=copy.edit, payload=payload, digest_before=digests[0], digest_after=digests[1],
        editor=operator.name[:150], editor_number=getattr(operator.user, "pk", None), reason=reason, created_at=now,
    )  # fmt: skip
    after = DeadLetter.objects.filter(pk=letter.pk).values_list("status", flat=True).first()
    again = "failed again: " if effect.state == "failed_again" else ""
    states: list[dict[str, Any]] = [
        {"status": status, "payload": found} for status, found in zip((letter.status, after), digests, strict=True)
    ]
    audit.record(
        operator, VERB, f"Letter {letter}", reason=reason, result=again + effect.evidence,
        detail={"letter": str(letter.pk), "position": letter.position, "edit": copy.edit}, subject_type=LETTER,
        subject_id=letter.pk, before=states[0], after=states[1],
    )  # fmt: skip


def who_was_faster(letter: DeadLetter) -> str:
    """What was done to the letter last, and by whom: one sentence."""
    deeds = OperatorAction.objects.about(LETTER, letter.pk).exclude(verb__in=NO_DEEDS)
    last = deeds.first()
    state = letter.get_status_display().lower()
    if last is None:  # a batch records one action for all its letters
        return f"The letter became {state} {humanize.ago(letter.updated_at, database_now())}."
    when = humanize.ago(last.created_at, database_now())
    return f"{last.actor_name}: {verb_in_words(last.verb).lower()}, {when}. The letter is {state} now."
