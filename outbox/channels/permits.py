"""How many messages a channel may send now: its pause, its token bucket and its circuit breaker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import transaction
from django.db.models import F, QuerySet

from config.admin.levers import Operator
from config.database.clock import database_now
from config.database.queries import compiled
from config.telemetry.logs import log_committed
from config.telemetry.redaction import masked_error
from outbox.audit_log import actions
from outbox.channels.handlers import Outcome
from outbox.channels.models import ChannelState

# -- The arithmetic of a channel's token bucket; its state is in ChannelState --------------------------------
# So many seconds of the rate may go at once, enough to send in small batches. Tokens are paid at the claim, not
# at the call: in any T seconds at most rate · T + (1 + workers) · capacity leave.
BURST_SECONDS = 0.1


def capacity(per_second: float) -> float:
    return max(1.0, per_second * BURST_SECONDS)


def refilled_tokens(tokens: float, since: datetime | None, now: datetime, per_second: float) -> float:
    """Tokens in the bucket now; one that was never used is full."""
    if since is None:
        return capacity(per_second)
    earned = max(0.0, (now - since).total_seconds()) * per_second
    return min(capacity(per_second), tokens + earned)


def when_bucket_is_full(tokens: float, now: datetime, per_second: float) -> datetime:
    """When to ask again: nine tenths of the time until the bucket is full, because asking takes time."""
    return now + timedelta(seconds=(capacity(per_second) - tokens) / per_second * 0.9)


# -- The circuit breaker of a channel: five outages in a row open it, any answer to a probe closes it --------
OUTAGES_IN_A_ROW = 5
FIRST_PROBE, LONGEST_PROBE = 5.0, 60.0  # seconds

OPEN, CLOSED = ChannelState.Breaker.OPEN, ChannelState.Breaker.CLOSED


def next_probe(opened_at: datetime, now: datetime) -> datetime:
    """The wait doubles: 5 s, 10 s, 20 s, … 60 s."""
    age = (now - opened_at).total_seconds()
    return now + timedelta(seconds=min(LONGEST_PROBE, max(FIRST_PROBE, age)))


def outages_at_end(outcomes: Sequence[Outcome]) -> int:
    """How many calls in a row, counted from the last one, found nobody."""
    run = 0
    for outcome in outcomes:
        run = run + 1 if outcome.kind == "unreachable" else 0
    return run


def note_outcomes(channel: str, outcomes: Sequence[Outcome], now: datetime, *, troubled: bool) -> bool:
    """Count outages and open or close the breaker, by one outcome a call; True when it is open now.

    Whatever the other side answers closes the breaker of a channel that is `troubled`: a refused message is an answer, too.
    """
    run = outages_at_end(outcomes)
    if troubled and run < len(outcomes) and ChannelState.objects.named(channel).ailing().close_breaker(now):
        log_committed("channel_answers", channel=channel)
    if not run:
        return False
    rows = ChannelState.objects.named(channel)
    rows.update(failures=F("failures") + run, last_error=outcomes[-1].error, updated_at=now)
    opened = rows.filter(breaker=CLOSED, failures__gte=OUTAGES_IN_A_ROW).update(
        breaker=OPEN, opened_at=now, probe_at=now + timedelta(seconds=FIRST_PROBE)
    )
    if opened:
        log_committed("breaker_opened", "error", channel=channel, error=masked_error(outcomes[-1].error))
    return rows.broken().exists()


# -- How many a channel may send now -------------------------------------------------------------------------
# How many messages a channel may send now. One row a channel, shared by all workers.
ITSELF = Operator("spillway")
PAUSED_LOOK = timedelta(seconds=1)
NO_REFUSAL: dict[str, object] = {"refused_as": "", "refused_people": "", "refused_since": None}


class ChannelRow(NamedTuple):
    """What of a `ChannelState` a claim asks for."""

    name: str
    paused: bool
    wait_until: datetime | None
    breaker: str
    opened_at: datetime | None
    probe_at: datetime | None
    tokens: float
    tokens_at: datetime | None


@dataclass
class Permit:
    """How many messages may be claimed now; with none, `look_again` says when it may be different."""

    most: int
    probe: bool = False
    tokens: float | None = None  # what the bucket held; None: no limit
    look_again: datetime | None = None
    why: str = ""


def ensure(channels: Sequence[str]) -> None:
    """Make the rows that are missing; another worker may be making them at this moment."""
    for name in sorted(channels):
        ChannelState.objects.get_or_create(name=name, defaults={"updated_at": database_now()})


def permit(channel: str, per_second: float, most: int, now: datetime, *, probing: bool = True) -> Permit:
    """Ask the channel, inside the transaction of the claim; without `probing` an open breaker stays open.

    With a rate the row stays locked until the claim has committed, so that tokens are spent once. Of an open
    breaker exactly one worker gets the probe: it moves `probe_at` on, guarded by the old value.
    """
    state = next((ChannelRow._make(row) for row in _read_row(channel=channel, locked=bool(per_second))), None)
    if state is None:
        ensure([channel])
        return permit(channel, per_second, most, now, probing=probing)
    if state.paused:
        return Permit(0, look_again=now + PAUSED_LOOK, why="paused")
    if state.wait_until and state.wait_until > now:
        return Permit(0, look_again=state.wait_until, why="told to wait")
    if state.breaker == ChannelState.Breaker.OPEN:
        return _probe(state, now) if probing else Permit(0, why="breaker open")
    if not per_second:
        return Permit(most)
    tokens = refilled_tokens(state.tokens, state.tokens_at, now, per_second)
    if tokens < 1:
        return Permit(0, tokens=tokens, look_again=when_bucket_is_full(tokens, now, per_second), why="rate")
    return Permit(min(most, int(tokens)), tokens=tokens)


@compiled
def _read_row(channel: str, locked: bool) -> QuerySet[ChannelState, object]:
    rows = ChannelState.objects.named(channel).values_list(*ChannelRow._fields)
    return rows.select_for_update() if locked else rows


def _probe(state: ChannelRow, now: datetime) -> Permit:
    probe_at = state.probe_at or now
    if probe_at > now:
        return Permit(0, look_again=probe_at, why="breaker open")
    later = next_probe(state.opened_at or now, now)
    won = ChannelState.objects.named(state.name).filter(probe_at=state.probe_at).update(probe_at=later)
    if not won:
        return Permit(0, look_again=later, why="breaker open")
    log_committed("breaker_probed", channel=state.name)
    return Permit(1, probe=True)


def spend_tokens(channel: str, granted: Permit, taken: int, now: datetime) -> None:
    """Store what is left in the bucket; `permit` has locked the row."""
    if granted.tokens is not None:
        ChannelState.objects.named(channel).update(tokens=granted.tokens - taken, tokens_at=now)


def wait(channel: str, seconds: float, now: datetime) -> None:
    """Claim nothing for so many seconds, because the other side said so; the longest such time counts."""
    until = now + timedelta(seconds=seconds)
    ChannelState.objects.named(channel).waiting_less(until).update(wait_until=until, updated_at=now)


def pause(channel: str, operator: Operator, reason: str, **more: object) -> bool:
    """Claim nothing for this channel until somebody resumes it; False when it is paused already.

    `more` are columns that change with it.
    """
    with transaction.atomic():
        ensure([channel])
        now = database_now()
        running = ChannelState.objects.named(channel).filter(paused=False)
        changed = running.update(
            paused=True, paused_by=operator.name[:150], pause_reason=reason, paused_at=now, updated_at=now, **more
        )
        if changed:
            _record(operator, "pause", channel, reason, before=False)
            # What a person writes may be about a customer; the audit log has it.
            why = reason if operator is ITSELF else ""
            log_committed("channel_paused", "warning", channel=channel, by=operator.name, reason=why)
    return bool(changed)


def resume(channel: str, operator: Operator, reason: str) -> bool:
    """Let a paused channel go on, its breaker closed and no longer told to wait; False when it was not paused.

    The next claim of the poller requeues the letters of the refusals that paused it, if that was the reason.
    """
    anew = {"paused_by": "", "pause_reason": "", "paused_at": None, "wait_until": None, **NO_REFUSAL}
    with transaction.atomic():
        changed = (
            ChannelState.objects.named(channel).filter(paused=True).close_breaker(database_now(), paused=False, **anew)
        )
        if changed:
            _record(operator, "resume", channel, reason, before=True)
            log_committed("channel_resumed", channel=channel, by=operator.name)
    return bool(changed)


def _record(operator: Operator, verb: str, channel: str, reason: str, *, before: bool) -> None:
    actions.record(
        operator, verb, f"Channel {channel}", reason=reason, subject_type="outbox.channelstate", subject_id=channel,
        before={"paused": before}, after={"paused": not before},
    )  # fmt: skip
