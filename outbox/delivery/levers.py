"""Levers on messages: cancel, try now, settle uncertain ones, send again; for the admin, commands and batches."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from django.conf import settings
from django.db import transaction
from django.utils.text import capfirst

from config.admin.levers import Operator
from config.database.clock import database_now
from config.letters import Effect, Refusal
from config.processes.worker import until_it_stands
from config.telemetry.logs import log_committed
from config.telemetry.redaction import masked_error
from outbox.audit_log import actions
from outbox.bookkeeping import counters
from outbox.channels.handlers import Message, handler_of, handlers, ids_of
from outbox.delivery import overdue
from outbox.delivery.candidates import read_messages
from outbox.messages.models import FLOW, RESENT, DeliveryAttempt, MessageQuerySet, OutboxMessage, Resend
from outbox.messages.notify import notify_relays
from outbox.messages.publish import ACCEPTED, IdempotencyConflict, publish, published_together

State = OutboxMessage.State
UNDER_WAY = "it is being sent again already"
GIVEN_UP = "an operator gave it up: nobody could tell whether it was accepted"


def cancel(ids: Sequence[uuid.UUID], operator: Operator, reason: str) -> int:
    """Never send these pending messages. Returns how many were still pending."""
    with transaction.atomic():
        rows = Locked(ids, [State.PENDING])
        changed = rows.update(state=State.CANCELLED, error=reason)
        return _done(operator, "cancel", rows, changed, reason, "cancelled")


def retry_now(ids: Sequence[uuid.UUID], operator: Operator, reason: str) -> int:
    """Do not wait for the backoff of these pending messages."""
    with transaction.atomic():
        now = database_now()
        rows = Locked(ids, [State.PENDING])
        changed = rows.filter(available_at__gt=now).update(available_at=now)
        transaction.on_commit(notify_relays, robust=True)
        return _done(operator, "try now", rows, changed, reason)


def it_was_sent(ids: Sequence[uuid.UUID], operator: Operator, reason: str) -> int:
    """Mark these uncertain messages as sent: somebody found out that they were accepted."""
    with transaction.atomic():
        now = database_now()
        rows = Locked(ids, [State.UNCERTAIN])
        changed = rows.update(sent_at=now, **ACCEPTED)
        DeliveryAttempt.objects.of(rows.ids).close(now, "sent")
        return _done(operator, "mark as sent", rows, changed, reason, "confirmed")


def send_again(ids: Sequence[uuid.UUID], operator: Operator, reason: str) -> int:
    """Send these uncertain messages again, although the other side may have them."""
    with transaction.atomic():
        rows = Locked(ids, [State.UNCERTAIN])
        # However many were made before, this one is tried as a last retry is: a worker that dies with it proves no crash loop.
        rows.filter(attempts__gt=settings.OUTBOX_MAX_RETRIES).update(attempts=settings.OUTBOX_MAX_RETRIES)
        changed = overdue.retry_uncertain(rows.ids, database_now())
        transaction.on_commit(notify_relays, robust=True)
        return _done(operator, "send again", rows, changed, reason, "retried_uncertain")


def give_up(ids: Sequence[uuid.UUID], operator: Operator, reason: str) -> int:
    """Make letters of these uncertain messages."""
    with transaction.atomic():
        now = database_now()
        rows = Locked(ids, [State.UNCERTAIN])
        changed = 0
        for channel in sorted(set(rows.channels.values())):
            mine = [pk for pk in rows.ids if rows.channels[pk] == channel]
            messages = read_messages(OutboxMessage.objects.among(mine))
            changed += overdue.give_up_uncertain(channel, messages, GIVEN_UP, now)
        return _done(operator, "give up", rows, changed, reason)


# -- What the levers share ------------------------------------------------------------------------------------
class Locked:
    """Rows of one lever: those in a state that allows it, locked; the update is guarded all the same."""

    def __init__(self, ids: Sequence[uuid.UUID], states: Sequence[str]) -> None:
        columns = ("id", "channel", "aggregate", "event_type", "correlation_id", "traceparent")
        found = OutboxMessage.objects.among(ids).filter(state__in=states).select_for_update()
        self.rows = list(found.order_by("id").only(*columns))
        self.channels = {row.pk: row.channel for row in self.rows}
        self.ids = list(self.channels)
        self.states = states

    def filter(self, **more: object) -> MessageQuerySet:
        return OutboxMessage.objects.among(self.ids).filter(state__in=self.states, **more)

    def update(self, **changes: object) -> int:
        return self.filter().update(**changes)


def _done(operator: Operator, verb: str, rows: Locked, changed: int, reason: str, counted: str = "") -> int:
    if not changed:
        return 0
    log_committed("messages_changed", verb=verb, by=operator.name, messages=changed, ids=ids_of(rows.rows))
    if counted:
        per_channel = Counter((FLOW, channel, counted) for channel in rows.channels.values())
        counters.add(per_channel, database_now())
    subject = f"Message {rows.ids[0]}" + (f" and {len(rows.ids) - 1} more" if len(rows.ids) > 1 else "")
    named = {"ids": [str(pk) for pk in rows.ids][:1000]}
    about: actions.Subject = {"subject_type": "outbox.outboxmessage", "subject_ids": rows.ids}
    actions.record(operator, verb, subject, reason=reason, rows=changed, detail=named, **about)
    return changed


# -- Sending again what was sent: one message for a person who asks, or those of a batch ---------------------
LATELY = timedelta(hours=24)  # how long a batch leaves alone what was sent again
LATELY_SAID = "It was sent again in the last 24 hours."
NOT_SENT = "only what was sent can be sent again"
WHY_NOT_SENT = {
    State.PENDING: "It is not sent yet.",
    State.PROCESSING: "It is not sent yet.",
    State.UNCERTAIN: "Nobody knows yet whether it was sent: settle it first.",
    State.DEAD_LETTERED: "It is a dead letter: requeue that one.",
    State.EXPIRED: "It expired before it was sent.",
    State.CANCELLED: "It was cancelled.",
}
SAID_AGAIN = "a new message says it again"
MOST_RERUNS = 5  # after deadlocks and lost answers, while a person waits


class Family(NamedTuple):
    """The first message that said something, and how often it was said again."""

    first: uuid.UUID
    copies: int
    newest_at: datetime | None  # the newest copy
    under_way: bool  # a copy is not sent yet, and may be


def resend(message_id: uuid.UUID, operator: Operator, reason: str, address: str = "") -> uuid.UUID:
    """Promise once more what a sent message said, to `address` if one is given; returns the new message's id.

    Raises Refusal: it was not sent, is being sent again already, or its recipient gets no mail. Whoever is told that it
    failed asks again, and that would be one mail more: where the answer to the commit is lost, it is looked for.
    """
    made: list[uuid.UUID] = []  # by the runs whose commit has no answer
    return until_it_stands(
        lambda: _resend(message_id, operator, reason, address, made),
        "resend",
        lambda failures, _remedy: failures < MOST_RERUNS,
    )


def _resend(message_id: uuid.UUID, operator: Operator, reason: str, address: str, made: list[uuid.UUID]) -> uuid.UUID:
    with transaction.atomic():
        now = database_now()
        # Locked, so that of two people who ask at once the second sees the message of the first; a commit of ours that
        # is still under way is waited for.
        original = OutboxMessage.objects.filter(pk=message_id, state=State.SENT).select_for_update().first()
        if original is None:
            raise Refusal(NOT_SENT)
        if ours := Resend.objects.filter(pk__in=made).first():
            return ours.message_id
        family = _families([original.pk])[original.pk]
        if family.under_way:
            raise Refusal(UNDER_WAY)
        try:
            again = _publish_again(original, _content(original, address), family, now, readdressed=bool(address))
        except ValueError as error:
            raise Refusal(str(error)) from error
        counters.add({(FLOW, original.channel, "resent"): 1}, now)
        actions.record(
            operator, "resend", f"Message {original.pk}", reason=reason, rows=1, result=f"message {again.message_id}",
            detail={"message": str(again.message_id), "readdressed": again.readdressed},
            subject_type="outbox.outboxmessage", subject_ids=[original.pk, again.message_id],
        )  # fmt: skip
        made.append(again.message_id)
    return again.message_id


def why_not_resent(messages: Sequence[OutboxMessage], now: datetime) -> dict[uuid.UUID, str]:
    """Why a batch may not send each of these again; empty for one that it may. Nothing is written."""
    families = _families([message.pk for message in messages])
    reasons: dict[uuid.UUID, str] = {}
    ready: list[OutboxMessage] = []
    firsts: set[uuid.UUID] = set()
    for message in sorted(messages, key=lambda message: message.pk):
        family = families[message.pk]
        reasons[message.pk] = _why_not_now(message, family, now) or (LATELY_SAID if family.first in firsts else "")
        if not reasons[message.pk]:
            firsts.add(family.first)
            ready.append(message)
    return reasons | _why_not_delivered(ready)


def resend_these(messages: Sequence[OutboxMessage], batch: int, now: datetime) -> dict[uuid.UUID, Effect]:
    """Promise once more what each of these says, in the caller's transaction, which has locked them and asked why not.

    One that somebody else sends again at this moment is not in the answer. The rows of its family are not locked: what
    names its key is read here, and so whoever is not the first finds the key, or that it may not be sent now.
    """
    families = _families([message.pk for message in messages])
    effects: dict[uuid.UUID, Effect] = {}
    with published_together():
        for message in sorted(messages, key=lambda message: message.pk):
            family = families[message.pk]
            if _why_not_now(message, family, now):
                continue
            try:
                payload = msgspec.json.decode(message.payload)
                again = _publish_again(message, payload, family, now, batch=batch)
            except Refusal:
                continue
            effects[message.pk] = Effect("waiting", SAID_AGAIN, successor=again.message_id)
    resent = Counter((FLOW, message.channel, "resent") for message in messages if message.pk in effects)
    counters.add(resent, now)
    return effects


def effects_of_copies(ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, Effect]:
    """What became of these messages that a batch has made; those on their way are not in the answer."""
    rows = OutboxMessage.objects.among(ids).values_list("id", "state", "receipt", "error")
    known = {pk: _effect_of_copy(state, receipt, error) for pk, state, receipt, error in rows}
    gone = Effect("refused", "The new message is gone before anybody saw what became of it.")
    return {pk: effect for pk in ids if (effect := known.get(pk, gone))}


def _effect_of_copy(state: str, receipt: str, error: str) -> Effect | None:
    if state == State.SENT:
        return Effect("resolved", f"sent, receipt {receipt or 'none'}")
    if state == State.CANCELLED:
        return Effect("discarded", "the new message was cancelled")
    if state in (State.DEAD_LETTERED, State.EXPIRED):
        return Effect("failed_again", masked_error(error) or "it expired before it was sent")
    return None


def _families(ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, Family]:
    """By message, in three queries for all of them."""
    rows = Resend.objects.filter(pk__any=frozenset(ids))
    first_of = dict.fromkeys(ids) | dict(rows.values_list("message_id", "resent_from"))
    firsts = {pk: first or pk for pk, first in first_of.items()}
    copies: dict[uuid.UUID, list[Resend]] = {}
    for copy in Resend.objects.of(firsts.values()):
        copies.setdefault(copy.resent_from, []).append(copy)
    made = OutboxMessage.objects.among(copy.message_id for some in copies.values() for copy in some)
    under_way = set(made.unfinished().values_list("pk", flat=True))
    families: dict[uuid.UUID, Family] = {}
    for pk, first in firsts.items():
        theirs = copies.get(first, [])
        newest_at = max((copy.created_at for copy in theirs), default=None)
        sending = any(copy.message_id in under_way for copy in theirs)
        families[pk] = Family(first, len(theirs), newest_at, sending)
    return families


def _why_not_now(message: OutboxMessage, family: Family, now: datetime) -> str:
    if message.state != State.SENT:
        return WHY_NOT_SENT[State(message.state)]
    if family.under_way:
        return f"{capfirst(UNDER_WAY)}."
    return LATELY_SAID if family.newest_at and family.newest_at > now - LATELY else ""


def _why_not_delivered(messages: Sequence[OutboxMessage]) -> dict[uuid.UUID, str]:
    """Those that their channel would not take, or whose recipient gets none."""
    reasons: dict[uuid.UUID, str] = {}
    by_channel: dict[str, list[OutboxMessage]] = {}
    for message in messages:
        if message.channel not in handlers():
            reasons[message.pk] = f"There is no channel {message.channel} any more."
            continue
        try:
            handler_of(message.channel).check(msgspec.json.decode(message.payload))
            by_channel.setdefault(message.channel, []).append(message)
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            reasons[message.pk] = f"It could not be sent: {masked_error(str(error))}."
    for channel, mine in by_channel.items():
        outcomes = handler_of(channel).screen([_as_sent(message, message.payload) for message in mine])
        reasons |= {
            pk: f"{capfirst(outcome.error)}. Lift that, or send it again alone to another address."
            for pk, outcome in outcomes.items()
        }
    return reasons


def _publish_again(
    original: OutboxMessage, payload: object, family: Family, now: datetime, *, batch: int | None = None, readdressed: bool = False,
) -> Resend:  # fmt: skip
    """The new message's row. Raises Refusal when somebody was faster, ValueError for what cannot be sent."""
    again = Resend(resent_from=family.first, readdressed=readdressed, batch=batch, created_at=now)
    key = f"{RESENT}{family.first}/{family.copies + 1}"
    payload = handler_of(original.channel).renewed(payload, key, now.timestamp())
    try:
        publish(
            original.event_type, original.aggregate, payload, idempotency_key=key,
            channel=original.channel, row=again, correlation_id=original.correlation_id, now=now,
        )  # fmt: skip
    except IdempotencyConflict:  # by whoever asked on the page of another one of them
        raise Refusal(UNDER_WAY) from None
    return again


def _content(original: OutboxMessage, address: str) -> object:
    """What the new message says. Raises Refusal for a recipient who gets no mail, ValueError for a bad address."""
    handler = handler_of(original.channel)
    payload = msgspec.json.decode(original.payload)
    if address:
        payload = handler.readdressed(payload, address)
    message = _as_sent(original, msgspec.json.encode(payload).decode())
    if outcome := handler.screen([message]).get(message.id):
        raise Refusal(f"{outcome.error}: give another address, or lift what stops this one")
    return payload


def _as_sent(original: OutboxMessage, payload: str) -> Message:
    """As its handler gets it, with this payload."""
    return Message(**{name: getattr(original, name) for name in Message._fields})._replace(payload=payload)
