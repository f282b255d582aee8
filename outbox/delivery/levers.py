"""Levers on messages: cancel, try now, settle uncertain ones; for the admin and for commands."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from django.conf import settings
from django.db import transaction

from config.admin.levers import Operator
from config.database.clock import database_now
from config.redelivery import Refusal
from outbox.audit_log import actions
from outbox.bookkeeping import counters
from outbox.channels.handlers import Message, handler_of
from outbox.delivery import overdue
from outbox.delivery.candidates import read_messages
from outbox.messages.confirm import ACCEPTED
from outbox.messages.models import FLOW, DeliveryAttempt, MessageQuerySet, OutboxMessage, Resend
from outbox.messages.notify import notify_relays
from outbox.messages.publish import IdempotencyConflict, publish

State = OutboxMessage.State
UNDER_WAY = "it is being sent again already"
GIVEN_UP = "an operator gave it up: nobody could tell whether it was accepted"


def cancel(ids: Sequence[uuid.UUID], operator: Operator, reason: str) -> int:
    """Never send these pending messages. Returns how many were still pending."""
    with transaction.atomic():
        rows = _locked(ids, [State.PENDING])
        changed = rows.update(state=State.CANCELLED, error=reason)
        return _done(operator, "cancel", ids, changed, reason, "cancelled", rows)


def retry_now(ids: Sequence[uuid.UUID], operator: Operator, reason: str) -> int:
    """Do not wait for the backoff of these pending messages."""
    with transaction.atomic():
        now = database_now()
        rows = _locked(ids, [State.PENDING])
        changed = rows.filter(available_at__gt=now).update(available_at=now)
        transaction.on_commit(notify_relays, robust=True)
        return _done(operator, "try now", ids, changed, reason)


def it_was_sent(ids: Sequence[uuid.UUID], operator: Operator, reason: str) -> int:
    """Mark these uncertain messages as sent: somebody found out that they were accepted."""
    with transaction.atomic():
        now = database_now()
        rows = _locked(ids, [State.UNCERTAIN])
        changed = rows.update(sent_at=now, **ACCEPTED)
        DeliveryAttempt.objects.of(rows.ids).close(now, "sent")
        return _done(operator, "mark as sent", ids, changed, reason, "confirmed", rows)


def send_again(ids: Sequence[uuid.UUID], operator: Operator, reason: str) -> int:
    """Send these uncertain messages again, although the other side may have them."""
    with transaction.atomic():
        rows = _locked(ids, [State.UNCERTAIN])
        # One try at least, however many were made before.
        rows.filter(attempts__gt=settings.OUTBOX_MAX_RETRIES).update(attempts=settings.OUTBOX_MAX_RETRIES)
        changed = overdue.retry_uncertain(rows.ids, database_now())
        transaction.on_commit(notify_relays, robust=True)
        return _done(operator, "send again", ids, changed, reason, "retried_uncertain", rows)


def give_up(ids: Sequence[uuid.UUID], operator: Operator, reason: str) -> int:
    """Make letters of these uncertain messages."""
    with transaction.atomic():
        now = database_now()
        rows = _locked(ids, [State.UNCERTAIN])
        changed = 0
        for channel in sorted(set(rows.channels.values())):
            mine = [pk for pk in rows.ids if rows.channels[pk] == channel]
            messages = read_messages(OutboxMessage.objects.among(mine))
            changed += overdue.give_up_uncertain(channel, messages, GIVEN_UP, now)
        return _done(operator, "give up", ids, changed, reason)


def resend(message_id: uuid.UUID, operator: Operator, reason: str, address: str = "") -> uuid.UUID:
    """Promise once more what a sent message said, to `address` if one is given; returns the new message's id.

    Raises Refusal: it was not sent, is being sent again already, or its recipient gets no mail.
    """
    with transaction.atomic():
        now = database_now()
        # Locked, so that of two people who ask at once the second sees the message of the first.
        original = OutboxMessage.objects.filter(pk=message_id, state=State.SENT).select_for_update().first()
        if original is None:
            raise Refusal("only what was sent can be sent again")
        before = Resend.objects.filter(pk=original.pk).first()
        first = before.resent_from if before else original.pk
        resent = list(Resend.objects.of([first]).values_list("message_id", flat=True))
        if OutboxMessage.objects.among(resent).unfinished().exists():
            raise Refusal(UNDER_WAY)
        again = Resend(resent_from=first, readdressed=bool(address), created_at=now)
        key = f"resend/{first}/{len(resent) + 1}"
        try:
            publish(
                original.event_type, original.aggregate, _content(original, address), idempotency_key=key,
                channel=original.channel, row=again, correlation_id=original.correlation_id, now=now,
            )  # fmt: skip
        except IdempotencyConflict:  # by whoever asked on the page of another one of them
            raise Refusal(UNDER_WAY) from None
        except ValueError as error:
            raise Refusal(str(error)) from error
        counters.add({(FLOW, original.channel, "resent"): 1}, now)
        actions.record(
            operator, "resend", f"Message {original.pk}", reason=reason, rows=1, result=f"message {again.message_id}",
            detail={"message": str(again.message_id), "readdressed": again.readdressed},
            subject_type="outbox.outboxmessage", subject_ids=[original.pk, again.message_id],
        )  # fmt: skip
    return again.message_id


def _content(original: OutboxMessage, address: str) -> Any:
    """What the new message says. Raises Refusal for a recipient who gets no mail, ValueError for a bad address."""
    handler = handler_of(original.channel)
    payload = msgspec.json.decode(original.payload)
    if address:
        payload = handler.readdressed(payload, address)
    text = msgspec.json.encode(payload).decode()
    message = Message(**{name: getattr(original, name) for name in Message._fields})._replace(payload=text)
    if outcome := handler.screen([message]).get(message.id):
        raise Refusal(f"{outcome.error}: give another address, or lift what stops this one")
    return payload


class Locked:
    """Rows of one lever: those in a state that allows it, locked; the update is guarded all the same."""

    def __init__(self, found: dict[uuid.UUID, str], states: Sequence[str]) -> None:
        self.channels = found
        self.ids = list(found)
        self.states = states

    def filter(self, **more: Any) -> MessageQuerySet:
        return OutboxMessage.objects.among(self.ids).filter(state__in=self.states, **more)

    def update(self, **changes: Any) -> int:
        return self.filter().update(**changes)


def _locked(ids: Sequence[uuid.UUID], states: Sequence[str]) -> Locked:
    rows = OutboxMessage.objects.among(ids).filter(state__in=states).select_for_update()
    return Locked(dict(rows.values_list("id", "channel")), states)


def _done(
    operator: Operator,
    verb: str,
    ids: Sequence[uuid.UUID],
    changed: int,
    reason: str,
    counted: str = "",
    rows: Locked | None = None,
) -> int:
    if not changed:
        return 0
    if counted and rows:
        per_channel = Counter((FLOW, channel, counted) for channel in rows.channels.values())
        counters.add(per_channel, database_now())
    subject = f"Message {ids[0]}" + (f" and {len(ids) - 1} more" if len(ids) > 1 else "")
    named = {"ids": [str(pk) for pk in ids][:1000]}
    about: dict[str, Any] = {"subject_type": "outbox.outboxmessage", "subject_ids": ids}
    actions.record(operator, verb, subject, reason=reason, rows=changed, detail=named, **about)
    return changed
