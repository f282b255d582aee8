"""What people do with batches: ask for one, confirm its preview, and pull its levers. For the admin and the command."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction

from config.admin.levers import LEAST_REASON, Operator, fault_of_reason
from config.database.clock import database_now
from config.fields import smallest_uuid7
from config.letters import Refusal
from config.telemetry.logs import log_committed
from outbox.letters.field_changes import FieldChange
from outbox.letters.filters import Filter
from outbox.letters.levers import LEASTS
from outbox.letters.models import DeadLetter
from outbox.messages.filters import MessageFilter
from outbox.replay_batches import lifecycle, pacing, preview
from outbox.replay_batches.models import LEASE, OF_MESSAGES, SENDING, ReplayBatch

State = ReplayBatch.State
LEAST = LEASTS | {"resend": LEAST_REASON}  # characters of the reason, by verb
FRESH = timedelta(minutes=10)  # how long a preview stands
TYPED_ABOVE = 1_000  # letters: whoever confirms more types their number
EVERY_LETTER = uuid.UUID(int=2**128 - 1)
MOST_CANARY = 500
CODE = re.compile(r"[\w-]{1,30}")
Edge = Callable[[ReplayBatch, datetime], dict[str, object]]


def draft(
    verb: str, chosen: Filter | MessageFilter, operator: Operator, *, reason: str = "", code: str = "",
    rate: float | None = None, canary: int | None = None, change: FieldChange | None = None,
    token: uuid.UUID | None = None, automatic: bool = False,
) -> ReplayBatch:  # fmt: skip
    """Ask for a batch: only the filter and the cut-off are written, a worker counts. Raises Refusal.

    `change` belongs to an edit, which needs one. `automatic`: nobody looks at the preview (a command). With a `token` the caller takes the steps itself.
    """
    chosen.check()
    check_pace(rate, canary)
    check_canary(verb, canary)
    check_code(verb, code)
    if (verb == "edit") != (change is not None):
        raise Refusal("an edit, and nothing else, says what it changes")
    if automatic:
        check_reason(verb, reason)
    now = database_now()
    mine: dict[str, object] = {"lease_token": token, "lease_until": now + LEASE} if token else {}
    who = {"requested_by": operator.name[:150], "user": operator.user, "reason": reason, "code": code}
    cut_off = EVERY_LETTER if chosen.ids or verb in OF_MESSAGES else _cut_off(now)
    batch = ReplayBatch.objects.create(
        verb=verb, filter=chosen.stored(), cut_off=cut_off, rate=rate, canary=canary, automatic=automatic,
        edit=change.stored() if change else {}, created_at=now, **who, **mine,
    )  # fmt: skip
    log_committed("replay_batch_moved", batch=batch.pk, verb=verb, was="", became=str(batch.state))
    return batch


def _cut_off(now: datetime) -> uuid.UUID:
    """The highest id that a letter of now may have: from before the database's clock went back there may be higher ones."""
    smallest = smallest_uuid7(int(now.timestamp() * 1000) + 1)
    return max(smallest, DeadLetter.objects.all().ahead_of(now) or smallest)


def confirm(
    batch_id: int, operator: Operator, reason: str, *, typed: str = "", code: str = "", rate: float | None = None,
    canary: int | None = None,
) -> ReplayBatch:  # fmt: skip
    """Start the hold of a previewed batch. Raises Refusal: no reason, a wrong count, an old preview, somebody faster."""
    check_pace(rate, canary)
    with transaction.atomic():
        batch = _locked(batch_id, State.PREVIEWED)
        check_reason(batch.verb, reason)
        check_canary(batch.verb, canary)
        check_code(batch.verb, code)
        now = database_now()
        is_fresh = batch.previewed_at is not None and now - batch.previewed_at <= FRESH
        if is_fresh:
            _check_count(batch, typed)
            who = {"requested_by": operator.name[:150], "user": operator.user, "reason": reason, "code": code}
            pace: dict[str, object] = {"canary": canary} if rate is None else {"canary": canary, "rate": rate}
            hold_until = now + timedelta(seconds=settings.REPLAY_HOLD_SECONDS)
            batch.change(state=State.HOLDING, hold_until=hold_until, **who, **pace)
            lifecycle.record_act(batch, operator)
        else:
            batch.change(**preview.AGAIN)
    if not is_fresh:
        raise Refusal("the preview was older than 10 minutes: it is counted again")
    return batch


def _check_count(batch: ReplayBatch, typed: str) -> None:
    if not batch.eligible:
        raise Refusal(f"there is nothing to {batch.verb}")
    if batch.eligible > TYPED_ABOVE and typed.replace(",", "").strip() != str(batch.eligible):
        raise Refusal(f"you typed {typed.strip() or 'nothing'}; the set has {batch.eligible:,} {batch.nouns[1]}")


def undo(batch_id: int, operator: Operator, reason: str = "") -> ReplayBatch:
    """Back to the preview before the hold is over: no letter was touched. Raises Refusal."""
    return _lever(batch_id, operator, "undo", reason, {State.HOLDING: State.PREVIEWED}, hold_until=None, note="")


def start_now(batch_id: int, operator: Operator, reason: str = "") -> ReplayBatch:
    """End the hold. Raises Refusal."""
    now = database_now()
    return _lever(batch_id, operator, "start now", reason, {State.HOLDING: State.HOLDING}, hold_until=now)


def pause(batch_id: int, operator: Operator, reason: str = "") -> ReplayBatch:
    """Take nothing more back until somebody resumes it; the chunk in hand is finished first. Raises Refusal."""
    edges = {State.CANARY: State.PAUSED, State.RUNNING: State.PAUSED}
    return _lever(batch_id, operator, "pause", reason, edges, note=f"Paused by {operator.name}."[:500])


def resume(batch_id: int, operator: Operator, reason: str = "") -> ReplayBatch:
    """Go on: a paused batch where it was, a stopped one past its canary and with no verdict remembered. Raises Refusal."""
    with transaction.atomic():
        batch = ReplayBatch.objects.filter(pk=batch_id).first()
        blocker = lifecycle.live_beside(batch) if batch and batch.state == State.STOPPED else None
        if blocker:
            raise Refusal(f"{blocker} of {blocker.requested_by} acts on the same source: wait, or cancel it")
        edges = {State.PAUSED: _where_it_was, State.STOPPED: _past_its_rule}
        return _lever(batch_id, operator, "resume", reason, edges, note="", tokens=0.0, tokens_at=None)


def _where_it_was(batch: ReplayBatch, now: datetime) -> dict[str, object]:
    return {"state": State.RUNNING if batch.promoted_at else State.CANARY}


def _past_its_rule(batch: ReplayBatch, now: datetime) -> dict[str, object]:
    slow = any(waits for _source, _step, waits in batch.kinds)
    anew = {"ring": "", "ramp_from": now if slow else None}
    return {"state": State.RUNNING, "promoted_at": batch.promoted_at or now, **anew}


def cancel(batch_id: int, operator: Operator, reason: str = "") -> ReplayBatch:
    """Leave the rest as it is; what was sent stays sent, and its effect is still looked for. Raises Refusal."""
    ended = ("counting", "previewed", "holding", "canary", "running", "paused", "stopped")
    note = f"Cancelled by {operator.name}{': ' if reason else '.'}{reason}"[:500]
    edges = {State(name): State.CANCELLED for name in ended}
    return _lever(batch_id, operator, "cancel", reason, edges, note=note, finished_at=database_now())


def set_rate(batch_id: int, operator: Operator, rate: float | None, reason: str = "") -> ReplayBatch:
    """Another rate from the next chunk on; null is unlimited. Raises Refusal."""
    check_pace(rate, None)
    kept = {state: state for state in (State.HOLDING, State.CANARY, State.RUNNING, State.PAUSED, State.STOPPED)}
    return _lever(batch_id, operator, "change rate", reason, kept, rate=rate, tokens=0.0, tokens_at=None)


def _lever(
    batch_id: int, operator: Operator, verb: str, reason: str,
    edges: Mapping[Any, State | Edge], **changes: object,
) -> ReplayBatch:  # fmt: skip
    """One guarded UPDATE and one operator action; Refusal for a batch in another state."""
    with transaction.atomic():
        batch = _locked(batch_id, *edges)
        before = batch.state
        edge = edges[State(batch.state)]
        batch.change(**changes, **(edge(batch, database_now()) if callable(edge) else {"state": edge}))
        result = f"{before} → {batch.state}" if batch.state != before else "done"
        lifecycle.record_batch(batch, operator, verb, reason, result, batch.eligible, before)
    return batch


def _locked(batch_id: int, *states: str) -> ReplayBatch:
    """The batch in one of these states, locked. Refusal says in which it is, and who was faster."""
    batch = ReplayBatch.objects.filter(pk=batch_id, state__in=states).select_for_update().first()
    if batch is not None:
        return batch
    other = ReplayBatch.objects.filter(pk=batch_id).first()
    if other is None:
        raise Refusal(f"{batch_id}: no such replay batch")
    by = f" ({other.note.rstrip('.')})" if other.note else ""
    raise Refusal(f"{other} of {other.requested_by} is {other.state} already{by}")


def check_reason(verb: str, reason: str) -> None:
    """Refuse a reason that is shorter than the lever on one letter asks for."""
    if fault := fault_of_reason(reason, LEAST[verb]):
        raise Refusal(fault)


def check_code(verb: str, code: str) -> None:
    """Refuse a code where there is none, and one that is no word: reports count by it."""
    if code and verb != "discard":
        raise Refusal(f"the code {code[:30]!r}: only a discard has one")
    if code and not CODE.fullmatch(code):
        raise Refusal(f"the code {code[:50]!r}: one word of at most 30 letters, digits, - and _")


def check_canary(verb: str, canary: int | None) -> None:
    """Refuse a canary where no effect is awaited: nothing could be learnt from it."""
    if canary and verb not in SENDING:
        raise Refusal(f"a canary of {canary}: what a {verb} does is done at once")


def check_pace(rate: float | None, canary: int | None) -> None:
    """Refuse a rate or a canary that makes no sense."""
    if rate is not None and not pacing.LEAST_RATE <= rate <= pacing.MOST_RATE:
        raise Refusal(f"a rate of {rate:g}/s: between {pacing.LEAST_RATE:g} and {pacing.MOST_RATE:,.0f}")
    if canary is not None and not 0 <= canary <= MOST_CANARY:
        raise Refusal(f"a canary of {canary}: between 0 and {MOST_CANARY}")
