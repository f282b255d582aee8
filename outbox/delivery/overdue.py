"""Decides about messages whose time ran out: not sent in time, uncertain without proof, lease lost."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction

from config.database.clock import database_now
from config.database.upsert import Rewrite
from config.telemetry import metrics
from config.telemetry.logs import RowIds, log_committed
from outbox.bookkeeping import counters
from outbox.channels.handlers import Message, MessageHandler, handlers, ids_of
from outbox.delivery.candidates import find_due, lock_among, lower_bound, read_messages
from outbox.delivery.retry import CHANGES, CRASHES, NextState, letter_of, limits, row_of
from outbox.letters.burial import bury
from outbox.messages.models import FLOW, DeliveryAttempt, OutboxMessage

# -- Expires messages that were not sent in time, with a dead letter, also in a paused or broken channel -----
A_ROUND = 200

EXPIRE = Rewrite(
    OutboxMessage, key="id", changes="error", constants="state error_class", guard="old.state = 'pending'", span="id"
)
TEXT = "it was not sent before its expires_at"
MAYBE_SENT = "its expires_at came, and nobody could tell whether an earlier try was accepted"


def expire(channel: str, messages: Sequence[Message], now: datetime) -> None:
    """Expire locked pending messages, in the caller's transaction."""
    rows = [(message.id.hex, _why_expired(message)) for message in messages]
    ended = EXPIRE.run(rows, {"state": OutboxMessage.State.EXPIRED.value, "error_class": "expired"})
    if ended != len(rows):
        raise RuntimeError(f"expired {ended} of {len(rows)} locked messages")
    bury(
        [letter_of(channel, message, "expire", "expired", _why_expired(message), now) for message in messages],
        FLOW,
        now,
    )
    counters.add({(FLOW, channel, "expired"): len(rows)}, now)
    log_committed("messages_expired", "warning", channel=channel, messages=len(rows), ids=ids_of(messages))


def _why_expired(message: Message) -> str:
    return MAYBE_SENT if message.times_uncertain else TEXT


def expire_due(channel: str) -> int:
    """Expire the oldest due messages that are too old; returns how many."""
    lowest, now = lower_bound.read(), database_now()
    oldest = OutboxMessage.objects.due(channel, now).from_id(lowest).values_list("id", "expires_at")
    late = [pk for pk, expires_at in find_due(oldest[:A_ROUND]) if expires_at <= now]
    if not late:
        return 0
    with transaction.atomic():
        messages = lock_among(late, channel, now, lowest, A_ROUND)
        expire(channel, messages, now)
    return len(messages)


# -- Decides about uncertain messages for which no proof came in time ----------------------------------------
UNDECIDED = "nobody could tell whether it was accepted, after every try"


def decide_uncertain(handler: MessageHandler) -> int:
    """Decide about the channel's uncertain messages whose time is over; returns how many moved.

    "retry" tries again, as long as there are tries left; "hold" leaves them to a person, and their successors
    go on.
    """
    if handler.when_uncertain() != "retry":
        return 0
    lowest = lower_bound.read()
    with transaction.atomic():
        now = database_now()
        undecided = OutboxMessage.objects.in_channel(handler.name).uncertain().filter(available_at__lte=now)
        messages = read_messages(undecided.from_id(lowest).locked()[:A_ROUND])
        if not messages:
            return 0
        spent = [m for m in messages if m.attempts > limits().attempts]
        again = [m for m in messages if m.attempts <= limits().attempts]
        moved = retry_uncertain([m.id for m in again], now)
        if again:
            log_committed("messages_retried", channel=handler.name, messages=moved, ids=ids_of(again))
        give_up_uncertain(handler.name, spent, UNDECIDED, now)
        counters.add({(FLOW, handler.name, "retried_uncertain"): moved}, now)
    return len(messages)


def retry_uncertain(ids: Sequence[uuid.UUID], now: datetime) -> int:
    """uncertain → pending, at once; how often it was uncertain stays written on it."""
    uncertain = OutboxMessage.objects.among(ids).uncertain()
    return uncertain.update(state=OutboxMessage.State.PENDING, available_at=now, lease_token=None)


def give_up_uncertain(channel: str, messages: Sequence[Message], why: str, now: datetime) -> int:
    """uncertain → dead letter; the messages are locked by the caller."""
    if not messages:
        return 0
    rows = OutboxMessage.objects.among([m.id for m in messages]).uncertain()
    ended = rows.update(state=OutboxMessage.State.DEAD_LETTERED, error=why)
    if ended != len(messages):
        raise RuntimeError(f"gave up {ended} of {len(messages)} locked messages")
    bury([letter_of(channel, m, "deliver", "uncertain", why, now) for m in messages], FLOW, now)
    counters.add({(FLOW, channel, "given_up"): ended}, now)
    log_committed("messages_dead", "warning", channel=channel, messages=ended, ids=ids_of(messages))
    return ended


# -- Recovery: decides about messages whose lease ran out ----------------------------------------------------
RESCUED_A_ROUND = 500
AT_MOST = 20  # rounds a call
LOST = "the worker did not come back; the other side may have accepted"

RECOVER = Rewrite(
    OutboxMessage,
    key="id",
    changes=CHANGES,
    constants="lease_token lease_until",
    guard="old.state = 'processing'",
    span="id",
)


def rescue(now: datetime) -> int:
    """Decide about every message whose lease ran out; safe to run twice, and beside the zombie itself.

    - An attempt of that lease is open: the call may have been made. Uncertain, unless the other side honours
      keys: then it is simply tried again.
    - No attempt is open, and the channel opens one before each call: it was never tried, the attempt is given
      back. A channel that acknowledges batches keeps it counted, because the batch may be what killed the worker.
    - Tried far more often than ever allowed: it kills its workers. Dead letter.
    """
    total = 0
    for _ in range(AT_MOST):
        rescued = _round(now)
        total += rescued
        if rescued < RESCUED_A_ROUND:
            break
    return total


def _round(now: datetime) -> int:
    lowest = lower_bound.read()
    with transaction.atomic():
        rows = OutboxMessage.objects.lost(now).from_id(lowest).locked()
        leases = dict(rows.order_by("lease_until")[:RESCUED_A_ROUND].values_list("id", "lease_token"))
        if not leases:
            return 0
        named = dict(OutboxMessage.objects.among(leases).values_list("id", "channel"))
        tried = _tried(leases, now)
        lost = [
            message._replace(attempts=message.attempts - 1)
            for message in read_messages(OutboxMessage.objects.among(leases))
        ]
        next_states = [
            (message, next_state_of_lost(message, named[message.id], message.id in tried, now)) for message in lost
        ]
        _write(next_states, named, now)
    metrics.RECOVERED.inc(len(next_states))
    about = {"table": "outbox_message", "rows": len(next_states), "tried": len(tried)}
    became = RowIds([after for _, after in next_states], became="state")
    log_committed("claims_recovered", "warning", **about, ids=ids_of([m for m, _ in next_states]) | became)
    return len(next_states)


def _tried(leases: dict[uuid.UUID, uuid.UUID], now: datetime) -> set[uuid.UUID]:
    """Messages whose last holder had begun a call; closes their attempts."""
    attempts = DeliveryAttempt.objects.of(leases).filter(lease_token__in=set(leases.values()))
    tries = dict(attempts.values_list("id", "message_id"))
    DeliveryAttempt.objects.filter(id__in=tries).close(now, "lost", LOST)
    return set(tries.values())


def next_state_of_lost(message: Message, channel: str, tried: bool, now: datetime) -> NextState:
    """Pure but for the settings: `message.attempts` counts the try that was cut short."""
    handler, rules = handlers().get(channel), limits()
    safe = handler is not None and handler.honours_keys
    attempts, uncertain = message.attempts, message.times_uncertain
    if attempts >= rules.attempts + CRASHES:
        return NextState("dead_lettered", attempts, now, uncertain, "lost", LOST, "crash_loop")
    if tried and not safe:
        later = now + timedelta(seconds=rules.reconcile)
        return NextState("uncertain", attempts, later, uncertain + 1, "lost", LOST)
    if not tried and (handler is None or handler.opens_attempts):
        attempts -= 1
    return NextState("pending", attempts, now, uncertain, "lost", "the worker did not come back")


def _write(next_states: Sequence[tuple[Message, NextState]], named: dict[uuid.UUID, str], now: datetime) -> None:
    rows = [row_of(m, after) for m, after in next_states]
    changed = RECOVER.run(rows, {"lease_token": None, "lease_until": None})
    if changed != len(next_states):
        raise RuntimeError(f"recovered {changed} of {len(next_states)} locked messages")
    dead = [(m, after) for m, after in next_states if after.letter]
    bury([letter_of(named[m.id], m, "deliver", after.letter, after.error, now) for m, after in dead], FLOW, now)
    counts = Counter((FLOW, named[m.id], "recovered") for m, _ in next_states)
    counts.update((FLOW, named[m.id], "buried") for m, _ in dead)
    counters.add(counts, now)
