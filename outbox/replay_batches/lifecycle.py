"""The states of a batch: what ends its hold and its canary, what it waits for, and its lines in the audit log."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from config.admin import humanize
from config.admin.levers import Operator
from config.database.clock import database_now
from config.flows import Kin, Need
from config.letters import Refusal
from outbox.audit_log import actions
from outbox.letters.field_changes import FieldChange
from outbox.replay_batches import pacing
from outbox.replay_batches.items import in_flight
from outbox.replay_batches.models import LIVE, ReplayBatch, ReplayItem
from outbox.replay_batches.subjects import subject_of, words_of

# -- What of a batch stands in the operators' trail: one action for the batch, one for each of its levers ----
NO_REASON = "–"
State = ReplayBatch.State
MOST_STOPPED = 3  # lines of home


def record_batch(
    batch: ReplayBatch, operator: Operator, verb: str, reason: str, result: str, rows: int = 0, before: str = ""
) -> None:
    """Insert an action about a batch, in the transaction of its effect; `before` is the state that it has left."""
    subject = f"{batch}: {batch.verb} {words_of(batch)}"
    detail = {"batch": batch.pk, "filter": batch.filter}
    detail |= {"change": FieldChange.of(batch.edit).without_values()} if batch.edit else {}
    words = {"reason": reason or NO_REASON, "result": result, "url": page_of(batch)}
    actions.record(
        operator, verb, subject, rows=rows, detail=detail, subject_type="outbox.replaybatch", subject_id=batch.pk,
        before={"state": before} if before else None, after={"state": batch.state}, **words,
    )  # fmt: skip


def record_act(batch: ReplayBatch, operator: Operator) -> None:
    """The batch itself: who asked for it, why, and how many letters it is about to act on."""
    result = f"{humanize.plural(batch.eligible, *batch.nouns)} to {batch.verb}"
    record_batch(batch, operator, batch.verb, batch.reason, result, batch.eligible)


def page_of(batch: ReplayBatch) -> str:
    """Where the batch is shown."""
    return f"/admin/outbox/replaybatch/{batch.pk}/change/"


def batch_needs(now: datetime) -> Iterator[Need]:
    """Batches that their rule stopped, with letters left, however long ago."""
    yield from map(_stopped_need, _stopped().order_by("-pk"))


def _stopped_need(batch: ReplayBatch) -> Need:
    return Need(
        "soon",
        f"{batch} was stopped by its rule",
        f"{batch.note} Resume it, or cancel it.".strip(),
        page_of(batch),
        "Show batch",
        amount=batch.eligible,
        unit=humanize.word(batch.eligible, "letter left", "letters left"),
        since=batch.started_at,
        rank=2,
        kind="batch",
        key=str(batch.pk),
        runbook="replay-batches.md",
        kin=Kin(MOST_STOPPED, ("more stopped batch", "more stopped batches"), "/admin/outbox/replaybatch/"),
    )


def batches_still_stopped(keys: Collection[str]) -> list[str]:
    """Which of these needs of `batch_needs` are not over."""
    stopped = _stopped().filter(pk__in=[key for key in keys if key.isdecimal()])
    return [str(pk) for pk in stopped.values_list("pk", flat=True)]


def _stopped() -> QuerySet[ReplayBatch]:
    return ReplayBatch.objects.filter(state=State.STOPPED, eligible__gt=0)


# -- The end of the hold, and of the canary ------------------------------------------------------------------
# Each is one guarded UPDATE, made by whoever carries the batch out.
BLOCKED = 1.0  # seconds until a batch that waits for another one looks again


def begin(batch: ReplayBatch, token: uuid.UUID) -> float:
    """Start a batch whose hold is over, unless another live one has letters of its sources; seconds until the next look."""
    now = database_now()
    if batch.hold_until and batch.hold_until > now:
        return min(BLOCKED, (batch.hold_until - now).total_seconds() + 0.01)
    with transaction.atomic():
        blocker = live_beside(batch)
        held = ReplayBatch.objects.held(batch.pk, token, State.HOLDING)
        if held is None or not held.hold_until or held.hold_until > now:
            return BLOCKED  # undone, or confirmed once more, at this moment
        if blocker:
            held.change(note=in_the_way(blocker))
            return BLOCKED
        size = _mark_canary(held)
        held.change(**_started(held, now, size))
        if held.automatic:
            record_act(held, Operator(held.requested_by, held.user))
    return 0.0


def live_beside(batch: ReplayBatch) -> ReplayBatch | None:
    """Another live batch with letters of the same sources; locks every batch that may start at this moment.

    All of them in one order: of two that start at once, the second sees the first.
    """
    list(ReplayBatch.objects.filter(state__in=(State.HOLDING, State.STOPPED, *LIVE)).order_by("pk").select_for_update())
    return blocker_of(batch)


def blocker_of(batch: ReplayBatch) -> ReplayBatch | None:
    """The same as a page may ask it: nothing is locked."""
    others = ReplayBatch.objects.filter(state__in=LIVE).exclude(pk=batch.pk).order_by("pk")
    sources = set(batch.sources)
    return next((other for other in others if sources & set(other.sources)), None)


def in_the_way(blocker: ReplayBatch) -> str:
    return f"Held behind {blocker} of {blocker.requested_by}: one batch of a source at a time."[:500]


def _started(batch: ReplayBatch, now: datetime, size: int) -> dict[str, object]:
    slow = any(waits for _source, _step, waits in batch.kinds)
    changes: dict[str, object] = {"started_at": batch.started_at or now, "note": "", "ramp_from": now if slow else None}
    if size:
        return {**changes, "state": State.CANARY, "canary": size}
    return {**changes, "state": State.RUNNING, "canary": 0, "promoted_at": now}


def _mark_canary(batch: ReplayBatch) -> int:
    """Choose the letters that go first; returns how many, 0 when none were asked for."""
    wanted = min(batch.canary_size, batch.eligible)
    if not wanted:
        return 0
    rows = ReplayItem.objects.of(batch).filter(state="eligible").oldest_first()
    pairs = rows.values_list("letter", "business_key").iterator(5000)
    chosen = pacing.choose_canary(pairs, batch.eligible, wanted)
    return ReplayItem.objects.of(batch).filter(letter__in=chosen).update(canary=True)


def promote(batch_id: int, token: uuid.UUID) -> float:
    """Let the rest go when every letter of the canary is good; 0 when that was so, otherwise seconds to wait.

    Where nobody waits for an effect, "taken back" is good enough; where all of them were skipped, others are chosen.
    """
    with transaction.atomic():
        batch = ReplayBatch.objects.held(batch_id, token, State.CANARY)
        if batch is None:
            return BLOCKED
        tried = ReplayItem.objects.of(batch).filter(canary=True)
        if any(_waits(batch, item) for item in tried if item.state in ("eligible", "requeued")):
            return 0.2
        states = {item.state for item in tried}
        if states & {"failed_again", "refused"}:  # while it was paused: nobody stopped it then
            batch.change(state=State.STOPPED, note="The canary failed while the batch was paused.")
        elif states <= {"skipped"} and batch.eligible:
            tried.update(canary=False)
            _mark_canary(batch)
        else:
            batch.change(state=State.RUNNING, promoted_at=database_now())
    return 0.0


def _waits(batch: ReplayBatch, item: ReplayItem) -> bool:
    """Whether a letter of the canary has no verdict yet."""
    return item.state == "eligible" or [item.source, item.step, True] in batch.kinds


# -- What a batch waits for, as its page and the command that carries it out say it --------------------------
MOST_ASKED = 100  # items on their way of which is asked why they get no further
AWAITING = ("canary", "running", "verifying")


def why_it_waits(batch: ReplayBatch, now: datetime) -> str:
    """Why it gets no further, and what helps; empty where nobody says."""
    if batch.note or batch.state not in AWAITING or not batch.requeued or not batch.sends:
        return batch.note
    items = _on_their_way(batch)
    why = subject_of(batch.verb).blocked_reason(items, now) if items else ""
    return f"Waits: {why}." if why else ""


def waiting_in_numbers(batch: ReplayBatch, now: datetime) -> str:
    """Its full window, and the live traffic that it stands behind; empty where there is neither."""
    if batch.state not in AWAITING or not batch.requeued or not batch.sends:
        return ""
    one, many = batch.nouns
    said = []
    if batch.eligible and batch.requeued >= _window(batch, now):
        on_their_way = humanize.plural(batch.requeued, f"{one} is", f"{many} are")
        said.append(f"{on_their_way} on their way, the most allowed: waiting for their proof.")
    flying = in_flight(batch)
    if flying and (before := subject_of(batch.verb).queue_depth(flying, now)):
        said.append(f"Behind {before}.")
    return " ".join(said)


def waits_for_effect(batch: ReplayBatch, now: datetime) -> str:
    """The same in a sentence for a batch that has not moved, though nobody says why."""
    items = _on_their_way(batch)  # none, where the effect has just come
    ahead = subject_of(batch.verb).queue_depth(items, now) if items else ""
    words = f"Waits for the effect of {humanize.plural(batch.requeued, *batch.nouns)}, which nobody has seen yet"
    return f"{words}, behind {ahead}" if ahead else words


def measured_rate(batch: ReplayBatch, now: datetime) -> float:
    """How many a second had their turn in the last minute."""
    return pacing.measured_rate(batch.marks, batch.turns, now.timestamp())


def _window(batch: ReplayBatch, now: datetime) -> int:
    """How many may be on their way; of what stands in line with live traffic no more than ten seconds of what goes."""
    try:
        shares_queue = subject_of(batch.verb).shares_queue(batch)
    except Refusal:  # a source that no flow knows any more
        shares_queue = False
    return min(batch.window, pacing.window_of(measured_rate(batch, now))) if shares_queue else batch.window


def _on_their_way(batch: ReplayBatch) -> list[ReplayItem]:
    return list(ReplayItem.objects.of(batch).filter(state="requeued").oldest_first()[:MOST_ASKED])
