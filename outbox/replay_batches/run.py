"""Runs a batch step by step, each step in one transaction under its lease, until there is proof; and the worker `replay_letters`."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import DatabaseError, InterfaceError, transaction

from config.database.clock import database_now
from config.database.retry import remedy_for
from config.flows import order_in
from config.letters import Effect
from config.processes import worker
from config.telemetry import metrics
from config.telemetry.activity import activity
from config.telemetry.logs import RowIds, log, log_committed
from config.telemetry.redaction import error_text, masked_error
from outbox.audit_log.hash_chain import seal
from outbox.letters.models import order_of_letter
from outbox.letters.redelivery import WORTH_ANOTHER_TRY, look_after
from outbox.replay_batches import items as window
from outbox.replay_batches import lifecycle, pacing, preview
from outbox.replay_batches.items import ItemOutcome, of_effect, with_reasons, write
from outbox.replay_batches.models import BEGUN, LEASE, OF_MESSAGES, TO_DO, ReplayBatch, ReplayItem
from outbox.replay_batches.subjects import subject_of

# -- One chunk of a batch in one transaction -----------------------------------------------------------------
# Its letters locked, judged again, acted on, and counted with the batch.
State = ReplayBatch.State
GOING = (State.CANARY, State.RUNNING)


class Lost(Exception):
    """The batch is not ours any more, or was paused, stopped or cancelled: nothing of this transaction may stay."""


def act_on_chunk(batch: ReplayBatch, token: uuid.UUID, items: Sequence[ReplayItem]) -> int:
    """Act on these items; one that the database or its flow breaks on is found by halves, alone, and spares the rest.

    Returns how many were acted on; fewer than given when the batch was paused, stopped or taken over meanwhile.
    """
    try:
        return _transact(batch.pk, token, items)
    except Lost:
        return 0
    except Exception as error:
        if remedy_for(error) in WORTH_ANOTHER_TRY:
            raise
        if len(items) == 1:
            log.exception("replay_item_refused", batch=batch.pk, letter=str(items[0].letter))
            return _refuse(batch.pk, token, items[0], f"{type(error).__name__}: {masked_error(error_text(error))}")
    middle = len(items) // 2
    return act_on_chunk(batch, token, items[:middle]) + act_on_chunk(batch, token, items[middle:])


def _transact(batch_id: int, token: uuid.UUID, items: Sequence[ReplayItem]) -> int:
    with transaction.atomic():
        batch = _held(batch_id, token)
        now = database_now()
        # Read before the lock: a commit of ours whose answer was lost may have acted on them since.
        items = list(ReplayItem.objects.filter(pk__in=[item.pk for item in items], state="eligible").oldest_first())
        if not items:
            return 0
        subject = subject_of(batch.verb)
        rows = subject.locked([item.letter for item in items])
        why = dict.fromkeys((item.letter for item in items), subject.gone) | dict.fromkeys(rows, "")
        judged = subject.judge(batch, rows, now)
        why |= judged.why
        effects = subject.act(batch, judged.ready, rows, now) if judged.ready else {}
        settle_chunk(batch, [_outcome(batch, item, why, effects) for item in items], now, spent=len(effects))
    return len(items)


def _refuse(batch_id: int, token: uuid.UUID, item: ReplayItem, why: str) -> int:
    with transaction.atomic():
        settle_chunk(_held(batch_id, token), [ItemOutcome(item, "refused", why)], database_now(), spent=1)
    return 1


def _held(batch_id: int, token: uuid.UUID) -> ReplayBatch:
    """The batch, locked; whoever wants to pause or cancel it waits for this transaction."""
    batch = ReplayBatch.objects.held(batch_id, token, *GOING)
    if batch is None:
        raise Lost
    return batch


def _outcome(
    batch: ReplayBatch, item: ReplayItem, why: Mapping[uuid.UUID, str], effects: Mapping[uuid.UUID, Effect]
) -> ItemOutcome:
    if reason := why.get(item.letter):
        return ItemOutcome(item, "skipped", reason)
    effect = effects.get(item.letter)
    return of_effect(item, batch.verb, effect) if effect else ItemOutcome(item, "skipped", "Somebody was faster.")


def settle_chunk(batch: ReplayBatch, outcomes: Sequence[ItemOutcome], now: datetime, *, spent: int = 0) -> None:
    """Write outcomes and the batch's counters, ring and tokens, in the transaction that has locked the batch.

    Stops it when its rule is broken, or when one of its canary failed. Raises Lost when it is not what was locked.
    """
    write(outcomes, now)
    counters = _counters(batch, outcomes)
    changes: dict[str, object] = {**counters}
    changes["skipped_why"] = with_reasons(batch.skipped_why, (one.note for one in outcomes if one.state == "skipped"))
    turns = batch.pinned - counters.get("eligible", batch.eligible)
    changes["marks"] = pacing.add_mark(batch.marks, turns, now.timestamp())
    changes |= {"tokens": batch.tokens - spent} if batch.rate else {}
    changes |= {"lease_until": now + LEASE} if batch.lease_token else {}
    changes |= _judged(batch, outcomes)
    if not batch.change(**changes):
        raise Lost
    transaction.on_commit(lambda: _count(batch, outcomes))
    states = dict(Counter(outcome.state for outcome in outcomes))
    ids = _ids_of_items(batch, [outcome.item for outcome in outcomes]) | RowIds(outcomes, became="state")
    log_committed("replay_chunk_settled", batch=batch.pk, verb=batch.verb, outcomes=states, ids=ids)


def _ids_of_items(batch: ReplayBatch, items: Sequence[object]) -> RowIds:
    if batch.verb in OF_MESSAGES:
        return RowIds(items, message_id="letter", aggregate="business_key", order_id=_order_of)
    return RowIds(items, letter_id="letter", business_key="business_key", order_id=order_of_letter)


def _order_of(item: Any) -> str:
    """The order that an item of messages, by their aggregate, is about."""
    return order_in(item.business_key)


def _counters(batch: ReplayBatch, outcomes: Sequence[ItemOutcome]) -> dict[str, int]:
    shift: Counter[str] = Counter()
    for outcome in outcomes:
        shift[outcome.item.state] -= 1
        shift[outcome.state] += 1
    return {name: getattr(batch, name) + number for name, number in shift.items() if number}


def _judged(batch: ReplayBatch, outcomes: Sequence[ItemOutcome]) -> dict[str, object]:
    """The ring, and whether it is enough."""
    verdicts = [outcome.verdict for outcome in outcomes if outcome.verdict is not None]
    if not verdicts:
        return {}
    ring, broken = pacing.add_verdicts(batch.ring, verdicts, batch.stop_percent)
    if batch.state == State.CANARY and not all(verdicts):
        bad = next(outcome for outcome in outcomes if outcome.verdict is False)
        return {"ring": ring, "state": State.STOPPED, "note": f"The canary failed: {bad.note.rstrip('.')[:450]}."}
    if broken and batch.state in GOING:
        failed = ring.count(pacing.BAD)
        note = f"Stopped by its rule: {failed} of the last {len(ring)} failed (limit {batch.stop_percent:g} %)."
        return {"ring": ring, "state": State.STOPPED, "note": note}
    return {"ring": ring}


def _count(batch: ReplayBatch, outcomes: Sequence[ItemOutcome]) -> None:
    for (source, state), number in Counter((one.item.source, one.state) for one in outcomes).items():
        # Messages of the outbox are no letters of it: they are counted apart.
        metrics.REPLAY_LETTERS.labels(batch.nouns[1] if batch.verb in OF_MESSAGES else source, state).inc(number)


# -- What became of what a batch has taken back, or sent again -----------------------------------------------
# Proof is looked for, then the batch counts it.
def look_for_proof(batch: ReplayBatch, token: uuid.UUID, items: Sequence[ReplayItem]) -> int:
    """Look for the effect of these items, and count what is known; returns how many were judged."""
    effects = subject_of(batch.verb).effects(items, database_now()) if items else {}
    return _count_proofs(batch.pk, token, items, effects) if effects else 0


def _count_proofs(
    batch_id: int, token: uuid.UUID, items: Sequence[ReplayItem], effects: Mapping[uuid.UUID, Effect]
) -> int:
    with transaction.atomic():
        batch = ReplayBatch.objects.held(batch_id, token, *BEGUN)
        if batch is None:
            return 0
        still = ReplayItem.objects.filter(pk__in=[item.pk for item in items], state="requeued").oldest_first()
        outcomes = [of_effect(item, batch.verb, effects[item.letter]) for item in still if item.letter in effects]
        settle_chunk(batch, outcomes, database_now())
    return len(outcomes)


# -- One step of a batch, whatever its state -----------------------------------------------------------------
# A worker or a command takes steps until there is nothing to do.
AT_ONCE, SOON, LATER = 0.0, 0.5, 2.0  # seconds until the next step


@dataclass
class Steps:
    """Takes the steps of batches under one lease token; remembers only what may be forgotten."""

    token: uuid.UUID = field(default_factory=uuid.uuid4)
    looked_at: dict[int, float] = field(default_factory=dict)  # when the letters in flight were looked at
    speeds: dict[int, pacing.Speed] = field(default_factory=dict)  # of the verdicts
    looked_to: dict[int, uuid.UUID] = field(default_factory=dict)  # how far the letters without effect were looked at

    def take(self, batch_id: int) -> float:
        """Seconds until the next step is worth it; 0 when something was done."""
        if not ReplayBatch.objects.take(batch_id, self.token, database_now()):
            return LATER
        batch = ReplayBatch.objects.get(pk=batch_id)
        if batch.state == State.COUNTING:
            return self._count(batch)
        if batch.state == State.HOLDING:
            return lifecycle.begin(batch, self.token)
        if batch.state in GOING:
            return self._go(batch)
        if batch.state == State.CANCELLED and batch.eligible:
            return AT_ONCE if put_back(batch, self.token) else SOON
        if batch.state in BEGUN and batch.requeued:
            return self._look_around(batch)
        return self._finish(batch) if batch.state == State.VERIFYING else LATER

    def say(self, batch_id: int, note: str) -> None:
        """What a page shows about a batch that we hold."""
        ReplayBatch.objects.held_by(self.token).filter(pk=batch_id, state__in=TO_DO).update(note=note[:500])

    def leave(self, batch_id: int) -> None:
        """Give the batch back: another process may go on at once."""
        ReplayBatch.objects.filter(pk=batch_id).release(self.token)

    def _count(self, batch: ReplayBatch) -> float:
        if not batch.pinned_at:
            preview.pin(batch.pk, self.token)
            return AT_ONCE
        return AT_ONCE if preview.judge_chunks(batch.pk, self.token) else SOON

    def _go(self, batch: ReplayBatch) -> float:
        """Judge what is in flight, then take a chunk back, if there is one, and nothing speaks against it."""
        now = database_now()
        flying = window.in_flight(batch)
        if flying and self._is_time(batch) and self._look(batch, flying):
            return AT_ONCE
        wait, most = room(batch, now)
        if wait:
            return wait
        items = window.next_items(batch, flying, most, self._window(batch))
        if not items:
            return self._over(batch, flying)
        why = subject_of(batch.verb).backpressure(items, now) if batch.sends else ""
        self._say(batch, why)
        if why:
            return SOON
        return AT_ONCE if act_on_chunk(batch, self.token, window.first_portion(items)) else SOON

    def _look(self, batch: ReplayBatch, flying: Sequence[ReplayItem]) -> int:
        judged = look_for_proof(batch, self.token, flying)
        if judged:
            self._speed(batch).add(judged, time.monotonic())
        return judged

    def _speed(self, batch: ReplayBatch) -> pacing.Speed:
        return self.speeds.setdefault(batch.pk, pacing.Speed(time.monotonic()))

    def _window(self, batch: ReplayBatch) -> int:
        """Ten seconds of its rate; before live traffic no more than ten seconds of what is really sent."""
        if not subject_of(batch.verb).shares_queue(batch):
            return batch.window
        return min(batch.window, self._speed(batch).window_at(time.monotonic()))

    def _is_time(self, batch: ReplayBatch) -> bool:
        """Whether the letters in flight were looked at half a second ago or more."""
        if time.monotonic() - self.looked_at.get(batch.pk, -SOON) < SOON:
            return False
        self.looked_at[batch.pk] = time.monotonic()
        return True

    def _over(self, batch: ReplayBatch, flying: Sequence[ReplayItem]) -> float:
        """Nothing to take now: the canary may have passed, everything may be out, or the window is full."""
        if batch.state == State.CANARY:
            return lifecycle.promote(batch.pk, self.token) or SOON
        if batch.eligible:
            return pacing.BUNCH
        if not batch.requeued:
            return self._finish(batch)
        return AT_ONCE if self._turn(batch, State.VERIFYING, note="") else SOON

    def _look_around(self, batch: ReplayBatch) -> float:
        """Look for the effects of the next five hundred letters, round and round."""
        rows = ReplayItem.objects.of(batch).filter(state="requeued").oldest_first()
        last = self.looked_to.pop(batch.pk, None)
        items = list((rows.filter(letter__gt=last) if last else rows)[: settings.REPLAY_CHUNK])
        if not items:
            return LATER
        self.looked_to[batch.pk] = items[-1].letter
        judged = look_for_proof(batch, self.token, items)
        return AT_ONCE if judged else SOON if len(items) == settings.REPLAY_CHUNK else LATER

    def _finish(self, batch: ReplayBatch) -> float:
        return AT_ONCE if self._turn(batch, State.DONE, finished_at=database_now(), note="") else SOON

    def _turn(self, batch: ReplayBatch, state: str, **changes: object) -> int:
        """To the next state, if the batch is still ours and in the one that was read."""
        mine = ReplayBatch.objects.held_by(self.token).filter(pk=batch.pk, state=batch.state)
        if moved := mine.update(state=state, **changes):
            log_committed("replay_batch_moved", batch=batch.pk, verb=batch.verb, was=batch.state, became=str(state))
        return moved

    def _say(self, batch: ReplayBatch, note: str) -> None:
        """What it waits for, or that it does no more."""
        words = f"Waits: {note}."[:500] if note else ""
        if words != batch.note:
            ReplayBatch.objects.held_by(self.token).filter(pk=batch.pk, state=batch.state).update(note=words)


def room(batch: ReplayBatch, now: datetime) -> tuple[float, int]:
    """(seconds until the rate allows a chunk, letters that it allows now)."""
    most = pacing.chunk_of(batch.acted_on, settings.REPLAY_CHUNK)
    if batch.rate is None:
        return 0.0, most
    rate = pacing.rate_at(batch.rate, batch.ramp_from, now)
    tokens = pacing.tokens_at(batch.tokens, batch.tokens_at, rate, now)
    wanted = min(pacing.bunch(rate, most), max(1, batch.eligible))
    if tokens < wanted:
        if batch.tokens_at is None:  # from here on they come; a lever has begun anew
            _write_tokens(batch, tokens, now)
        return max(0.01, pacing.seconds_until(wanted, tokens, rate)), 0
    _write_tokens(batch, tokens, now)
    return 0.0, min(most, int(tokens))


def _write_tokens(batch: ReplayBatch, tokens: float, now: datetime) -> None:
    ReplayBatch.objects.filter(pk=batch.pk, lease_token=batch.lease_token).update(tokens=tokens, tokens_at=now)


def put_back(batch: ReplayBatch, token: uuid.UUID) -> int:
    """Of a cancelled batch: what was not acted on is left as it is, chunk by chunk."""
    with transaction.atomic():
        held = ReplayBatch.objects.held(batch.pk, token, State.CANCELLED)
        if held is None:
            return 0
        rows = ReplayItem.objects.of(held).filter(state="eligible").only("letter", "business_key")
        items = list(rows[: 4 * settings.REPLAY_CHUNK])
        still = ReplayItem.objects.filter(pk__in=[item.pk for item in items], state="eligible")
        moved = still.update(state="left", changed_at=database_now())
        held.change(eligible=held.eligible - moved, left=held.left + moved)
        ids = _ids_of_items(held, items)
        log_committed("replay_chunk_settled", batch=held.pk, verb=held.verb, outcomes={"left": moved}, ids=ids)
    return moved


# -- The worker `replay_letters`: carries out batches, step by step, and looks after requeued letters --------
BROKEN = 10.0  # seconds until a batch whose step failed is tried again
PAUSE = 0.5  # seconds: pause and cancel hold within one
LOOK_AFTER = 5.0  # seconds between two rounds over all requeued letters


class BatchWorker:
    """Takes a step of every batch that has something to do, in turn; several workers share them by lease."""

    def __init__(self, stop: threading.Event) -> None:
        self.stop = stop
        self.steps = Steps()
        self.held: set[int] = set()
        self.due: dict[int, float] = {}  # monotonic times, by batch
        self.next_round = 0.0

    def run(self, *, once: bool = False, until_idle: float | None = None) -> None:
        try:
            worker.run(self.tick, self.stop, pause=self.pause, once=once, until_idle=until_idle)
        finally:
            with suppress(DatabaseError, InterfaceError):  # it may be why we end, and the leases end by themselves
                for batch_id in self.held:
                    self.steps.leave(batch_id)

    def tick(self) -> int:
        """How many steps did something."""
        done = self._look_after()
        known = list(ReplayBatch.objects.in_work().values_list("pk", flat=True))
        self.due = {batch_id: self.due.get(batch_id, 0.0) for batch_id in known}
        for batch_id in known:
            if self.stop.is_set():
                break
            if self.due[batch_id] <= time.monotonic():
                self.held.add(batch_id)
                wait = self._take(batch_id)
                self.due[batch_id] = time.monotonic() + wait
                done += wait == 0.0
        activity.hold("replay_letters", [f"batch {number}" for number in known if number in self.held], "steps")
        return done

    def _take(self, batch_id: int) -> float:
        """One step; a batch that its flow breaks on says so, and the others go on."""
        try:
            return self.steps.take(batch_id)
        except Exception as error:
            if remedy_for(error) in WORTH_ANOTHER_TRY:
                raise
            log.exception("replay_step_failed", batch=batch_id)
            self.steps.say(batch_id, f"Waits: {type(error).__name__}: {masked_error(error_text(error))}")
            return BROKEN

    def pause(self) -> float:
        """Seconds until the first batch is due; new ones are noticed at least as often as PAUSE says."""
        return max(0.0, min([PAUSE, *(due - time.monotonic() for due in self.due.values())]))

    def _look_after(self) -> int:
        if time.monotonic() < self.next_round:
            return 0
        closed = look_after(database_now())
        seal(database_now())  # beat does it once a minute, and not everywhere does a beat run
        self.next_round = time.monotonic() + LOOK_AFTER
        return closed
