"""Settling: attempts and outcomes of claimed messages in one transaction, for those still held."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, partial
from itertools import count
from typing import TypeVar

from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.models import QuerySet

from config.database.clock import database_now
from config.database.dialects.base import Dialect, Insertion
from config.database.dialects.vendors import dialect_for
from config.database.queries import compiled
from config.database.retry import Remedy, remedy_for
from config.database.upsert import Rewrite, Upsert, timestamp_text, uuid_text
from config.fields import in_ascii, uuid7
from config.processes.worker import until_it_stands
from config.telemetry import metrics
from config.telemetry.logs import log, log_committed
from config.telemetry.redaction import error_text, masked_error
from outbox.bookkeeping import counters
from outbox.channels import permits
from outbox.channels.handlers import Message, MessageHandler, Outcome, ids_of
from outbox.channels.models import ChannelState
from outbox.delivery import refusals
from outbox.delivery.claim import Claim
from outbox.delivery.retry import CHANGES, NextState, letter_of, limits, next_state, row_of
from outbox.letters.burial import Letter, bury
from outbox.messages.models import FLOW, DeliveryAttempt, OutboxMessage
from outbox.messages.publish import ACCEPTED

# -- Delivery attempts ---------------------------------------------------------------------------------------
# Opened before a call whose outcome a crash could hide, closed with the message's next state.
OPEN_COLUMNS = "id message_id number"
CONSTANTS = "channel lease_token path worker started_at finished_at"
OPEN = Upsert(
    DeliveryAttempt, columns=OPEN_COLUMNS, constants=f"{CONSTANTS} outcome error receipt", key="id", update={}
)
CLOSED = Upsert(
    DeliveryAttempt, columns=f"{OPEN_COLUMNS} outcome error receipt", constants=CONSTANTS, key="", update={}
)
CLOSE = Rewrite(
    DeliveryAttempt,
    key="id",
    changes="outcome error receipt",
    constants="finished_at",
    guard="old.finished_at IS NULL",
    span="id",
)
# New at each start of the process: a host's name alone would hide a restart.
WORKER = f"{socket.gethostname()[:60]}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
LONGEST_RECEIPT = 300


def open_attempts(
    claim: Claim, messages: Sequence[Message], now: datetime, stop: threading.Event
) -> dict[uuid.UUID, str]:
    """Write down that these messages are about to be tried; returns `{message: attempt}` of those that are, committed.

    A worker may have been frozen since its look at the lease, or wait here for a lock on the table until the lease is
    over. So an attempt is opened only for what the claim holds, and what it holds is locked until the commit; lost
    messages are left out. After a commit whose answer was lost the second run finds the attempts of the first.
    """
    claim.attempts.update({message.id: uuid7().hex for message in messages})
    runs = count()

    def unit() -> dict[uuid.UUID, str]:
        if next(runs) == 0 and len(messages) == 1 and _opened_alone(claim, messages[0].id, now):
            return {messages[0].id: claim.attempts[messages[0].id]}
        return _open_for_held(claim, messages, now)

    return until_it_stands(unit, "outbox-attempts", while_leased(claim, stop))


def _opened_alone(claim: Claim, message_id: uuid.UUID, now: datetime) -> bool:
    """Look, lock and open in one statement: a transaction of four would be a quarter of all that a mail costs."""
    connection = connections[DEFAULT_DB_ALIAS]
    dialect = dialect_for(connection)
    attempt = {"attempt": uuid.UUID(claim.attempts[message_id]), "now": now, "path": claim.path, "worker": WORKER}
    held = {"id": message_id, "lease_token": claim.token, "state": "processing"}
    with connection.cursor() as cursor:
        cursor.execute(_open_alone(dialect), dialect.adapted(connection, {**attempt, **held}))
        return bool(cursor.rowcount)


@cache
def _open_alone(dialect: Dialect) -> str:
    given = {
        "id": ("attempt", "uuid"),
        "started_at": ("now", "timestamp"),
        "path": ("path", "text"),
        "worker": ("worker", "text"),
    }
    values = {column: dialect.cast(f"%({name})s", kind) for column, (name, kind) in given.items()}
    values |= dict.fromkeys(["outcome", "error", "receipt"], "''")
    of_message = {"message_id": "id", "number": "attempts", "channel": "channel", "lease_token": "lease_token"}
    values |= {column: dialect.quoted(name) for column, name in of_message.items()}
    row = Insertion(DeliveryAttempt._meta.db_table, values)
    return dialect.insert_locking(row, OutboxMessage._meta.db_table, ["id", "lease_token", "state"])


def _open_for_held(claim: Claim, messages: Sequence[Message], now: datetime) -> dict[uuid.UUID, str]:
    with transaction.atomic():
        held = [message for message, _ in _still_held(claim, [(message, None) for message in messages])]
        OPEN.run(
            [(claim.attempts[message.id], message.id.hex, message.attempts) for message in held],
            {**_constants(claim, now, None), "outcome": "", "error": "", "receipt": ""},
        )
    return {message.id: claim.attempts[message.id] for message in held}


def close_attempts(claim: Claim, call: Call, results: Results, now: datetime) -> None:
    """Those that were opened before the call; of a batch that may be repeated without harm they are inserted now."""
    if call.opened is None:
        rows = [(uuid7().hex, message.id.hex, message.attempts, *_words(outcome)) for message, outcome in results]
        CLOSED.run(rows, _constants(claim, call.started, now))
    else:
        CLOSE.run([(call.opened[message.id], *_words(outcome)) for message, outcome in results], {"finished_at": now})


def _constants(claim: Claim, started: datetime, finished: datetime | None) -> dict[str, object]:
    held = {"channel": claim.channel, "lease_token": uuid_text(claim.token), "path": claim.path, "worker": WORKER}
    return {**held, "started_at": started, "finished_at": finished}


def _words(outcome: Outcome) -> tuple[str, str, str]:
    return outcome.kind, outcome.error, outcome.receipt[:LONGEST_RECEIPT]


# -- Settling: the outcomes of claimed messages are written in one transaction, for those still held ---------
PATIENCE_AT_THE_END = 5.0  # seconds that a worker told to stop waits for its database
THROTTLED_WAIT = 1.0  # seconds, where a 429 says no time
LONGEST_THROTTLE = 3600.0  # seconds; a header that is wrong over there must not stop us for years

HELD = "old.state = 'processing'"
SENT = Rewrite(
    OutboxMessage,
    key="id",
    changes="receipt",
    constants="state sent_at lease_until error_class error",
    fixed="lease_token",
    guard=HELD,
    span="id",
)
UNSENT = Rewrite(
    OutboxMessage, key="id", changes=CHANGES, constants="lease_until", fixed="lease_token", guard=HELD, span="id"
)
RELEASE = Rewrite(
    OutboxMessage,
    key="id",
    changes="attempts available_at",
    constants="state lease_until",
    fixed="lease_token",
    guard=HELD,
    span="id",
)

Results = Sequence[tuple[Message, Outcome]]
Known = TypeVar("Known")  # of a message: its outcome, or nothing yet


class FenceLost(Exception):
    """Fewer rows changed than were held: another worker holds some of them now."""


@dataclass
class Settlement:
    """The next state of each message that was not sent, and the reason to stop sending through this channel, if any."""

    next_states: dict[uuid.UUID, NextState] = field(default_factory=dict)
    halt: str = ""


@dataclass(frozen=True)
class Call:
    """One call of a handler: its messages with their outcomes, and the attempts opened before it, if any."""

    results: Results
    started: datetime
    opened: dict[uuid.UUID, str] | None = None


def while_leased(claim: Claim, stop: threading.Event) -> Callable[[int, Remedy], bool]:
    """Whether a worker tries again: as long as its lease, and hardly any longer where it is told to stop."""
    last = float("inf")  # until when (monotonic) a worker that is told to stop tries

    def worth_it(_failures: int, _remedy: Remedy) -> bool:
        nonlocal last
        if stop.is_set():
            last = min(last, time.monotonic() + PATIENCE_AT_THE_END)
        return claim.lease_left >= 0 and time.monotonic() < last

    return worth_it


def settle(claim: Claim, handler: MessageHandler, call: Call, stop: threading.Event) -> Settlement:
    """Write what became of each message, for those still held by the claim's token.

    Again after a deadlock or while the database is away, because what is not settled is sent twice.
    """
    unit = partial(_settle_whatever_they_say, claim, handler, call)
    settlement = until_it_stands(unit, "outbox-settle", while_leased(claim, stop))
    _count(claim, call)
    return settlement


def _settle_whatever_they_say(claim: Claim, handler: MessageHandler, call: Call) -> Settlement:
    """An outcome whose words the database refuses is found by halves, and written without them: it has happened."""
    try:
        return _settle_held(claim, handler, call)
    except Exception as error:
        if remedy_for(error) is not Remedy.DATA:
            raise
        log.warning(
            "outcomes_refused", channel=claim.channel, outcomes=len(call.results), error=masked_error(error_text(error))
        )
        if len(call.results) == 1:
            return _settle_without_words(claim, handler, call)
    middle = len(call.results) // 2
    first, rest = (
        _settle_whatever_they_say(claim, handler, replace(call, results=part))
        for part in (call.results[:middle], call.results[middle:])
    )
    return Settlement({**first.next_states, **rest.next_states}, first.halt or rest.halt)


def _settle_without_words(claim: Claim, handler: MessageHandler, call: Call) -> Settlement:
    """In ASCII; and with nothing but the kind of the outcome where that is refused, too."""
    ((message, outcome),) = call.results
    plain = replace(outcome, error=in_ascii(outcome.error), receipt=in_ascii(outcome.receipt)[:LONGEST_RECEIPT])
    try:
        return _settle_held(claim, handler, replace(call, results=[(message, plain)]))
    except Exception as error:
        if remedy_for(error) is not Remedy.DATA:
            raise
    bare = replace(outcome, error="the database refuses what was answered", receipt="", reason="")
    return _settle_held(claim, handler, replace(call, results=[(message, bare)]))


def _settle_held(claim: Claim, handler: MessageHandler, call: Call) -> Settlement:
    try:
        with transaction.atomic():
            return _write(claim, handler, call, call.results)
    except FenceLost:
        with transaction.atomic():
            return _write(claim, handler, call, _still_held(claim, call.results))


def _still_held(claim: Claim, results: Sequence[tuple[Message, Known]]) -> list[tuple[Message, Known]]:
    """The messages whose rows we still hold, now locked, with what is known of each; the others are counted and logged."""
    ids = [message.id for message, _ in results]
    held = OutboxMessage.objects.among(ids).held_by(claim.token).select_for_update()
    rows = dict(held.values_list("id", "state"))
    kept = [(message, outcome) for message, outcome in results if rows.get(message.id) == "processing"]
    # Held by our token, but no longer processing: settled by us in a commit whose answer was lost, or confirmed.
    lost = len(results) - len(rows)
    if lost:
        metrics.FENCE_LOST.inc(lost)
        log_committed(
            "fence_lost", "warning", table="outbox_message", channel=claim.channel, lost=lost, token=str(claim.token),
            ids=ids_of([message for message, _ in results if message.id not in rows]),
        )  # fmt: skip
    return kept


def _write(claim: Claim, handler: MessageHandler, call: Call, results: Results) -> Settlement:
    now = database_now()
    token = uuid_text(claim.token)
    rules = limits()
    sent = [(message, outcome) for message, outcome in results if outcome.ok]
    unsent = [(m, outcome, next_state(m, outcome, now, rules)) for m, outcome in results if not outcome.ok]
    receipts = [(m.id.hex, outcome.receipt[:LONGEST_RECEIPT]) for m, outcome in sent]
    changed = SENT.run(receipts, {**ACCEPTED, "sent_at": now, "lease_token": token})
    changed += UNSENT.run([row_of(m, after) for m, _, after in unsent], {"lease_until": None, "lease_token": token})
    if changed != len(results):
        raise FenceLost
    close_attempts(claim, call, results, now)
    letters = {
        m.id: letter_of(claim.channel, m, "deliver", after.letter, after.error, now)
        for m, _, after in unsent
        if after.letter
    }
    if letters:
        bury(list(letters.values()), FLOW, now)
    handler.settled(results, now)
    settlement = Settlement({m.id: after for m, _, after in unsent})
    if results:
        settlement.halt = _tell_channel(claim, handler, results, letters, now)
    kinds: Counter[str] = Counter(outcome.kind for _, outcome in results)
    kinds["buried"] = len(letters)
    counters.add({(FLOW, claim.channel, kind): number for kind, number in kinds.items()}, now)
    _log_states(claim, [m for m, _ in sent], unsent)
    return settlement


def _log_states(claim: Claim, sent: Sequence[Message], unsent: Sequence[tuple[Message, Outcome, NextState]]) -> None:
    """A line for each state that messages came to, when it is committed."""
    channel = claim.channel
    if sent:
        # Most often all that were claimed: their ids are spelt already.
        ids = claim.ids if sent == claim.messages else ids_of(sent)
        log_committed("messages_sent", channel=channel, messages=len(sent), ids=ids)
    came_to: dict[str, list[Message]] = {}
    for message, _outcome, after in unsent:
        came_to.setdefault(after.state, []).append(message)
    if again := came_to.get("pending"):
        log_committed("messages_retried", channel=channel, messages=len(again), ids=ids_of(again))
    if unclear := came_to.get("uncertain"):
        log_committed("messages_uncertain", "warning", channel=channel, messages=len(unclear), ids=ids_of(unclear))
    if dead := came_to.get("dead_lettered"):
        log_committed("messages_dead", "warning", channel=channel, messages=len(dead), ids=ids_of(dead))


def _tell_channel(
    claim: Claim, handler: MessageHandler, results: Results, letters: Mapping[uuid.UUID, Letter], now: datetime
) -> str:
    """Update breaker, pause and waiting time of the channel; returns the reason to stop sending, or an empty one."""
    # Asked once: there is nearly never anything to end, and each UPDATE would be a round trip a mail.
    troubled = bool(_troubled(channel=claim.channel))
    outcomes = [outcome for _, outcome in results]
    if not troubled and all(outcome.ok for outcome in outcomes):
        return ""
    # Where one message of a call got an answer, somebody is there.
    calls = [min(call, key=lambda o: o.kind == "unreachable") for call in handler.per_call(outcomes)]
    halt = "breaker open" if permits.note_outcomes(claim.channel, calls, now, troubled=troubled) else ""
    refused = next((outcome for outcome in outcomes if outcome.kind == "auth"), None)
    if refused:
        permits.pause(claim.channel, permits.ITSELF, f"account or credentials refused: {masked_error(refused.error)}")
        halt = "account refused"
    throttled = [outcome for outcome in outcomes if outcome.kind == "throttled"]
    if throttled:
        asked = max(o.retry_after or THROTTLED_WAIT for o in throttled)
        permits.wait(claim.channel, min(asked, LONGEST_THROTTLE), now)
        halt = halt or "told to wait"
    if refusals.count_refusals(handler, results, letters, now, troubled=troubled):
        halt = halt or "refused alike"
    return halt


@compiled
def _troubled(channel: str) -> QuerySet[ChannelState, object]:
    return ChannelState.objects.named(channel).troubled().values_list("name")


def release(claim: Claim, messages: Sequence[tuple[Message, datetime]], why: str, stop: threading.Event) -> int:
    """Make untried messages pending again and give their attempt back; each comes with the time it may be claimed at.

    An attempt that was opened, and not followed by its call, is closed as `released`.
    """
    unit = partial(_release, claim, messages, why)
    return until_it_stands(unit, "outbox-release", while_leased(claim, stop))


def _release(claim: Claim, messages: Sequence[tuple[Message, datetime]], why: str) -> int:
    rows = [(m.id.hex, m.attempts - 1, timestamp_text(at)) for m, at in messages]
    opened = [claim.attempts[message.id] for message, _ in messages if message.id in claim.attempts]
    with transaction.atomic():
        released = RELEASE.run(
            rows,
            {"state": OutboxMessage.State.PENDING.value, "lease_until": None, "lease_token": uuid_text(claim.token)},
        )
        if opened:
            DeliveryAttempt.objects.filter(id__in=opened).close(database_now(), "released", why)
        if claim.limited:
            ChannelState.objects.give_back(claim.channel, released)
    ids = [message.id for message, _ in messages]
    # What bears our token and is not in processing was released by us, in a commit whose answer was lost.
    lost = len(rows) - OutboxMessage.objects.among(ids).held_by(claim.token).count() if released < len(rows) else 0
    if lost:
        metrics.FENCE_LOST.inc(lost)
    about = {"channel": claim.channel, "messages": released, "lost": lost, "why": why}
    log_committed("messages_released", **about, ids=ids_of([message for message, _ in messages]))
    return released


def _count(claim: Claim, call: Call) -> None:
    tries = Counter((message.event_type, outcome.kind) for message, outcome in call.results)
    for (event_type, kind), number in tries.items():
        metrics.DELIVERIES.labels(claim.channel, metrics.event_label(event_type), kind).inc(number)
    now = claim.clock()
    sent = [message for message, outcome in call.results if outcome.ok]
    for message in sent:
        metrics.COMMIT_TO_SEND.observe(max(0.0, (now - message.created_at).total_seconds()))
    if claim.recorded:
        _time_legs(claim, call.started, now, sent)
    if len(sent) < len(call.results):
        _log_failures(claim.channel, call.results)


def _log_failures(channel: str, results: Results) -> None:
    """A line for each kind of failure with its text: an outage is one, however many messages met it."""
    failed: dict[tuple[str, str], list[Message]] = {}
    for message, outcome in results:
        if not outcome.ok:
            # A server repeats what it was given: an address, a name, a line of the mail.
            failed.setdefault((outcome.kind, masked_error(outcome.error)), []).append(message)
    for (outcome_kind, error), messages in failed.items():
        failure = {"outcome": outcome_kind, "error": error, "messages": len(messages)}
        log.warning("delivery_failed", channel=channel, **failure, ids=ids_of(messages))


def _time_legs(claim: Claim, started: datetime, settled: datetime, sent: Sequence[Message]) -> None:
    """Where the time went of messages that change capture brought; clocks of hosts differ, so no leg is below 0."""
    ours = [claim.now.timestamp(), started.timestamp(), settled.timestamp()]
    moments = [[m.created_at.timestamp(), claim.recorded[m.id], *ours] for m in sent]
    for number, leg in enumerate(("record", "claim", "try", "settle")):
        seconds = metrics.CDC_LEG_SECONDS.labels(leg)
        for at in moments:
            seconds.observe(max(0.0, at[number + 1] - at[number]))
