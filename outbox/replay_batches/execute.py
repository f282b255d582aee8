"""Executes one chunk of a batch in one transaction, and follows what became of it until there is proof."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from django.db import transaction

from config.database.clock import database_now
from config.database.transactions import remedy_for
from config.redelivery import Effect
from config.telemetry import metrics
from config.telemetry.logs import listed, log, log_committed
from config.telemetry.redaction import masked_error, said
from outbox.letters.redelivery import WORTH_ANOTHER_TRY
from outbox.replay_batches import actions, rules
from outbox.replay_batches.items import ItemOutcome, of_effect, with_reasons, write
from outbox.replay_batches.models import BEGUN, LEASE, OF_MESSAGES, ReplayBatch, ReplayItem
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
            return _refuse(batch.pk, token, items[0], f"{type(error).__name__}: {masked_error(said(error))}")
    middle = len(items) // 2
    return act_on_chunk(batch, token, items[:middle]) + act_on_chunk(batch, token, items[middle:])


def _transact(batch_id: int, token: uuid.UUID, items: Sequence[ReplayItem]) -> int:
    with transaction.atomic():
        batch = _held(batch_id, token)
        now = database_now()
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
    return of_effect(item, batch.verb, effect) if effect else ItemOutcome(item, "skipped", actions.FASTER)


def settle_chunk(batch: ReplayBatch, outcomes: Sequence[ItemOutcome], now: datetime, *, spent: int = 0) -> None:
    """Write outcomes and the batch's counters, ring and tokens, in the transaction that has locked the batch.

    Stops it when its rule is broken, or when one of its canary failed. Raises Lost when it is not what was locked.
    """
    write(outcomes, now)
    counters = _counters(batch, outcomes)
    changes: dict[str, object] = {**counters}
    changes["skipped_why"] = with_reasons(batch.skipped_why, (one.note for one in outcomes if one.state == "skipped"))
    turns = batch.pinned - counters.get("eligible", batch.eligible)
    changes["marks"] = rules.add_mark(batch.marks, turns, now.timestamp())
    changes |= {"tokens": batch.tokens - spent} if batch.rate else {}
    changes |= {"lease_until": now + LEASE} if batch.lease_token else {}
    changes |= _judged(batch, outcomes)
    if not batch.change(**changes):
        raise Lost
    transaction.on_commit(lambda: _count(batch, outcomes))
    states = dict(Counter(outcome.state for outcome in outcomes))
    ids = listed([outcome.item for outcome in outcomes], letter_id="letter")
    log_committed("replay_chunk_settled", batch=batch.pk, verb=batch.verb, outcomes=states, **ids)


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
    ring, broken = rules.add_verdicts(batch.ring, verdicts, batch.stop_percent)
    if batch.state == State.CANARY and not all(verdicts):
        bad = next(outcome for outcome in outcomes if outcome.verdict is False)
        return {"ring": ring, "state": State.STOPPED, "note": f"The canary failed: {bad.note}"[:500]}
    if broken and batch.state in GOING:
        failed = ring.count(rules.BAD)
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
