"""Refusals alike: when different recipients in a row are refused for one cause, the cause is ours, and the channel pauses.

The messages of such a run have become letters by then. They go back when somebody resumes the channel: the poller
requeues them before its next claim, so that it makes no difference who resumed it, and a crash in between loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import transaction

from config.database.clock import database_now
from config.payload import digest
from config.processes.worker import until_it_stands
from config.telemetry.redaction import masked_error
from outbox.audit_log import actions
from outbox.channels import permits
from outbox.channels.handlers import Message, MessageHandler, Outcome
from outbox.channels.models import ChannelState
from outbox.letters import redelivery
from outbox.letters.burial import Letter
from outbox.letters.models import LISTED, DeadLetter
from outbox.messages.models import FLOW

HASH = 8  # characters of a recipient's hash
NO_RUN: dict[str, object] = permits.NO_REFUSAL


class RefusedMessage(NamedTuple):
    """One message that became a letter: for which cause, and whose it was."""

    cause: str  # the fingerprint of its group
    who: str
    error: str
    of_recipient: bool = False


class RefusalRun(NamedTuple):
    """Refusals for one cause without a message sent in between. The fields are columns of ChannelState."""

    refused_as: str = ""
    refused_people: str = ""
    refused_since: datetime | None = None

    @property
    def people(self) -> list[str]:
        """Hashes of the recipients; one that is refused again and again is one."""
        return [self.refused_people[at : at + HASH] for at in range(0, len(self.refused_people), HASH)]

    def after(self, refusal: RefusedMessage | None, now: datetime) -> RefusalRun:
        """The run after one more refusal; None is a message that was sent."""
        if refusal is None:
            return RefusalRun()
        if refusal.cause != self.refused_as:
            # Bad addresses among the others weaken a run, and do not end it.
            if refusal.of_recipient and self.people[1:]:
                return self._replace(refused_people=self.refused_people[:-HASH])
            return RefusalRun(refusal.cause, refusal.who, now)
        if refusal.who in self.people:
            return self
        return self._replace(refused_people=self.refused_people + refusal.who)


# -- A try is settled --------------------------------------------------------------------------------------
def count_refusals(
    handler: MessageHandler, results: Sequence[tuple[Message, Outcome]], letters: Mapping[UUID, Letter], now: datetime,
    *, troubled: bool,
) -> bool:  # fmt: skip
    """Count refusals alike, in the transaction that settles them, and pause the channel; True when it is paused now.

    A message that was sent ends a run, where the channel is `troubled` by one.
    """
    most, steps = settings.OUTBOX_PAUSE_AFTER_REFUSALS, list(_steps(handler, results, letters))
    if not most or not handler.opens_attempts or not steps:
        return False
    last = next((step for step in reversed(steps) if step), None)
    if last is None:
        if troubled:
            ChannelState.objects.named(handler.name).refused_in_a_row().update(**NO_RUN)
        return False
    rows = ChannelState.objects.named(handler.name)
    permits.ensure([handler.name])
    paused, *stored = rows.select_for_update().values_list("paused", *RefusalRun._fields).get()
    run = was = RefusalRun(*stored)
    for step in steps:
        run = run.after(step, now)
    if len(run.people) >= most:
        return _pause(handler.name, run, last.error)
    if run != was:
        rows.update(**run._asdict())
    return bool(paused)


def _steps(
    handler: MessageHandler, results: Sequence[tuple[Message, Outcome]], letters: Mapping[UUID, Letter]
) -> Iterator[RefusedMessage | None]:
    """What counts: messages that were sent, and those whose end may be the account's fault, whatever one answer says."""
    for message, outcome in results:
        if outcome.ok:
            yield None
        elif (outcome.unclear or outcome.of_recipient) and (letter := letters.get(message.id)):
            who = digest(handler.recipient(message).encode("utf-8", "replace"))[:HASH]
            yield RefusedMessage(letter.cause.fingerprint, who, outcome.error, outcome.of_recipient)


def _pause(channel: str, run: RefusalRun, error: str) -> bool:
    """With the letters that it owes; who had paused it before keeps the word. The channel's row is locked."""
    reason = f"{len(run.people)} recipients in a row were refused alike: {masked_error(error)}. Their letters are requeued on resume."
    owed = {"requeue_as": run.refused_as, "requeue_since": run.refused_since, **NO_RUN}
    if not permits.pause(channel, permits.ITSELF, reason, **owed):
        ChannelState.objects.named(channel).filter(requeue_since=None).update(**owed)
    return True


# -- The channel is resumed --------------------------------------------------------------------------------
def bring_back(handler: MessageHandler) -> int:
    """Requeue the letters that a resumed channel owes; returns how many. Several workers may do so at once."""
    if not handler.opens_attempts:
        return 0
    requeued = 0
    owing = ChannelState.objects.named(handler.name).owing_letters()
    owed: list[tuple[str, Any]] = list(owing.values_list("requeue_as", "requeue_since"))
    for cause, since in owed:
        last: UUID | None = UUID(int=0)
        while last:
            unit = partial(_bring_back, handler.name, cause, since, last)
            last, number = until_it_stands(unit, "letters-back")
            requeued += number
    return requeued


def _bring_back(channel: str, cause: str, since: datetime, last: UUID) -> tuple[UUID | None, int]:
    """The next letters in one transaction; returns the last of them, None when there are no more, and how many went back.

    The letters come first and the channel's row last, as where they are settled.
    """
    alike = DeadLetter.objects.of_source(FLOW).open().filter(group__fingerprint=cause, created_at__gte=since)
    with transaction.atomic():
        letters = list(alike.filter(pk__gt=last).order_by("pk")[:LISTED])
        mine = [letter for letter in letters if dict(letter.headers).get("channel") == channel]
        effects = redelivery.take_back(mine, database_now())
        taken = [pk for pk, effect in effects.items() if effect.state == "waiting"]
        if taken:
            actions.record(
                permits.ITSELF, "requeue", f"{len(taken)} letters of channel {channel}", rows=len(taken),
                reason="the channel was resumed", subject_type="outbox.deadletter", subject_ids=taken,
            )  # fmt: skip
        if len(letters) == LISTED:
            return letters[-1].pk, len(taken)
        owing = ChannelState.objects.named(channel).filter(requeue_as=cause, requeue_since=since)
        owing.owing_letters().update(requeue_as="", requeue_since=None)
        return None, len(taken)
