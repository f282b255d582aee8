"""Levers on messages: cancel, try now, settle uncertain ones; for the admin and for commands."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.db import transaction

from config.admin.levers import Operator
from config.database.clock import database_now
from outbox.audit_log import actions
from outbox.bookkeeping import counters
from outbox.delivery import overdue
from outbox.delivery.candidates import read_messages
from outbox.messages.confirm import ACCEPTED
from outbox.messages.models import FLOW, DeliveryAttempt, MessageQuerySet, OutboxMessage
from outbox.messages.notify import notify_relays

State = OutboxMessage.State
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
