"""Conservation of the outbox: what was promised is somewhere, what was sent was tried, and order was kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Count, DateTimeField, Exists, F, Max, OuterRef, QuerySet, RowRange, Window

from config.database.clock import database_now
from config.database.snapshot import consistent_snapshot
from config.flows import Check
from config.uuid7 import smallest_uuid7
from outbox.bookkeeping import counters
from outbox.bookkeeping.dropped_rows import dropped_rows
from outbox.bookkeeping.verify import OFFENDERS
from outbox.letters.verify import letters_counted
from outbox.messages.insert import SCOPE
from outbox.messages.keys import KEYS_SWEPT
from outbox.messages.models import FLOW, DeliveryAttempt, IdempotencyKey, OutboxMessage
from outbox.partitioned import MESSAGES

State = OutboxMessage.State


def checks() -> Iterator[Check]:
    """All invariants of the outbox, in one snapshot."""
    with consistent_snapshot():
        # The messages are read first: a day that is being dropped is then waited for. PostgreSQL would
        # otherwise show an older snapshot the counters from before the drop and an empty day.
        states = dict(OutboxMessage.objects.values_list("state").annotate(number=Count("pk")).order_by())
        now = database_now()
        yield _published_is_somewhere(states)
        yield _every_key_has_its_message(now)
        yield _states_fit()
        yield _sent_was_tried(now)
        yield _order_was_kept()
        yield letters_counted([FLOW])


def _published_is_somewhere(states: dict[str, int]) -> Check:
    """Every message was written with its idempotency key: two tables that must agree."""
    keys = IdempotencyKey.objects.filter(scope=SCOPE).count() + counters.totals(FLOW).get(KEYS_SWEPT, 0)
    names = " + ".join(state.value for state in State)
    return Check(
        f"outbox: published = {names} + dropped by retention",
        keys,
        sum(states.values()) + dropped_rows(FLOW, MESSAGES),
    )


def _every_key_has_its_message(now: datetime) -> Check:
    kept = _first_id(now, min(settings.OUTBOX_RETENTION_DAYS, settings.OUTBOX_IDEMPOTENCY_DAYS) - 1)
    lost = IdempotencyKey.objects.filter(scope=SCOPE, message_id__gte=kept).exclude(
        Exists(OutboxMessage.objects.filter(pk=OuterRef("message_id")))
    )
    return Check("outbox: every idempotency key has its message", rows=_shown(lost.values_list("key", "message_id")))


def _states_fit() -> Check:
    """A lease exactly while somebody sends; a time of sending exactly when it was sent."""
    held = OutboxMessage.objects.filter(state=State.PROCESSING, lease_until=None)
    loose = OutboxMessage.objects.unfinished().exclude(state=State.PROCESSING).exclude(lease_until=None)
    undated = OutboxMessage.objects.filter(state=State.SENT, sent_at=None)
    dated = OutboxMessage.objects.unfinished().exclude(sent_at=None)
    rows = [row for found in (held, loose, undated, dated) for row in _shown(found.values_list("pk", "state"))]
    return Check("outbox: leases and times fit the states", rows=rows)


def _sent_was_tried(now: datetime) -> Check:
    """As far back as attempts are kept."""
    kept = _first_id(now, min(settings.ATTEMPT_RETENTION_DAYS, settings.OUTBOX_RETENTION_DAYS) - 1)
    untried = OutboxMessage.objects.filter(state=State.SENT, pk__gte=kept).exclude(
        Exists(DeliveryAttempt.objects.filter(message_id=OuterRef("pk")))
    )
    return Check("outbox: no sent message without its attempt", rows=_shown(untried.values_list("pk", flat=True)))


def _order_was_kept() -> Check:
    """No message of an aggregate was sent before an older one of the same channel.

    Those that were uncertain, or came back from a final state, may be late: their successors did not wait.
    """
    regular = OutboxMessage.objects.filter(state=State.SENT, times_uncertain=0, times_revived=0)
    older = Window(
        Max("sent_at"),
        partition_by=[F("channel"), F("aggregate")],
        order_by=F("id").asc(),
        frame=RowRange(start=None, end=-1),
        output_field=DateTimeField(),
    )
    late = regular.annotate(older_sent_at=older).filter(older_sent_at__gt=F("sent_at")).order_by()
    return Check("outbox: no aggregate out of order", rows=_shown(late.values_list("aggregate", "pk")))


def _first_id(now: datetime, days: int) -> UUID:
    return smallest_uuid7(int((now - timedelta(days=max(0, days))).timestamp() * 1000))


def _shown(rows: QuerySet[Any, Any]) -> list[Any]:
    return list(rows[:OFFENDERS])
