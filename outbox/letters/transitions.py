"""State transitions of a letter: each is one guarded UPDATE whose count is checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from config.database.retry import Stale
from config.database.upsert import Rewrite
from config.flows import by_kind, no_flow_takes
from config.letters import Effect, Letters
from config.telemetry.logs import RowIds, log_committed
from outbox.groups.counts import Shift, shift, summed
from outbox.letters.models import DeadLetter, order_of_letter

# -- Changes of a letter's state -----------------------------------------------------------------------------
# Each is one guarded UPDATE whose count is checked, then the counts of groups, sorted.
Status = DeadLetter.Status
LONGEST_URL = 300
LONGEST_EVIDENCE = 1000


class Move(NamedTuple):
    """What a letter becomes, and what is written of it."""

    status: str
    note: str = ""  # what a lever did; evidence and the rest say what became of it
    evidence: str = ""
    url: str = ""
    carrier: UUID | None = None
    successor: UUID | None = None
    code: str = ""


def _edge(old: str) -> Rewrite:
    """From one state to those in the rows; a letter that is not in it any more is not touched."""
    return Rewrite(
        DeadLetter,
        key="id",
        changes="status code evidence_url note evidence",
        constants="updated_at",
        guard=f"old.status = '{old}'",
        span="id",
    )


EDGES = {status: _edge(status) for status in Status}
LINKS = {
    name: Rewrite(DeadLetter, key="id", changes=name, span="id") for name in ("carrier", "predecessor", "successor")
}


def locked(ids: Sequence[UUID], status: str) -> set[UUID]:
    """Those letters that are in this state, now locked in the order of their ids."""
    rows = DeadLetter.objects.filter(pk__in=list(ids), status=status).order_by("pk").select_for_update()
    return set(rows.values_list("pk", flat=True))


def move(letters: Sequence[DeadLetter], moves: Mapping[UUID, Move], old: str, now: datetime) -> int:
    """Write what became of letters that are locked in the state `old`, and count their groups; returns how many.

    Raises Stale, and nothing may stay, where one was not in that state any more.
    """
    chosen = [letter for letter in letters if letter.pk in moves]
    rows = [_row(letter.pk, moves[letter.pk]) for letter in chosen]
    changed = EDGES[Status(old)].run(rows, {"updated_at": now})
    if changed != len(rows):
        raise Stale(f"{len(rows) - changed} of {len(rows)} letters were not {old} any more")
    _link(chosen, moves)
    taken = [letter.pk for letter in chosen if moves[letter.pk].status == Status.REQUEUED]
    if taken:
        DeadLetter.objects.filter(pk__in=taken).update(requeued_at=now)
    shift(summed((letter.group_id, _shift_of(old, moves[letter.pk].status)) for letter in chosen), now)
    if chosen:
        became = RowIds([moves[letter.pk] for letter in chosen], became="status")
        ids = RowIds(
            chosen, letter_id="id", source="source", group="group_id", business_key="business_key",
            order_id=order_of_letter, correlation_id="correlation_id",
        )  # fmt: skip
        log_committed("letters_moved", letters=len(chosen), was=str(old), ids=ids | became)
    return changed


def _row(pk: UUID, move: Move) -> tuple[str, ...]:
    return (pk.hex, str(move.status), move.code, move.url[:LONGEST_URL], move.note, move.evidence[:LONGEST_EVIDENCE])


def _link(letters: Sequence[DeadLetter], moves: Mapping[UUID, Move]) -> None:
    """Both ways, and to what carries the effect."""
    carried = [(letter.pk.hex, carrier.hex) for letter in letters if (carrier := moves[letter.pk].carrier)]
    followed = [(letter.pk.hex, heir.hex) for letter in letters if (heir := moves[letter.pk].successor)]
    LINKS["carrier"].run(carried)
    LINKS["successor"].run(followed)
    LINKS["predecessor"].run([(after, before) for before, after in followed])


def _shift_of(old: str, new: str) -> Shift:
    """What a letter that moves changes in the counts of its group."""
    opened = (new == Status.OPEN) - (old == Status.OPEN)
    requeued = (new == Status.REQUEUED) - (old == Status.REQUEUED)
    return Shift(opened, requeued, closed=int(new in (Status.RESOLVED, Status.DISCARDED)))


# -- Closes letters without their effect, and opens them again: discard, resolve, restore --------------------
# Why a letter is discarded, in one word: what a report over many discards can be counted by.
CODES = {
    "": "No code",
    "duplicate": "A duplicate",
    "outdated": "Nobody wants it any more",
    "elsewhere": "Done by other means",
    "malformed": "It can never be right",
    "test": "A test",
}
OUTCOMES = {
    Status.OPEN: Effect("waiting", "open again"), Status.RESOLVED: Effect("resolved", "resolved"),
    Status.DISCARDED: Effect("discarded", "discarded"),
}  # fmt: skip


def discard(letters: Sequence[DeadLetter], now: datetime, code: str = "") -> dict[UUID, Effect]:
    """Give letters up, with what else belongs to them, in the caller's transaction; nothing is deleted.

    A letter that is not open any more is not in the answer; one that its flow cannot discard stays open, `refused`.
    """
    return _close(letters, now, Status.OPEN, Status.DISCARDED, lambda theirs, some: theirs.discard(some, now), code)


def resolve(letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Effect]:
    """Mark letters as dealt with elsewhere, in the caller's transaction; the answer is that of `discard`."""
    return _close(letters, now, Status.OPEN, Status.RESOLVED)


def restore(letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Effect]:
    """Open discarded letters again, and what their discard closed; the answer is that of `discard`, `waiting` if open."""
    return _close(letters, now, Status.DISCARDED, Status.OPEN, lambda theirs, some: theirs.restore(some, now))


def _close(
    letters: Sequence[DeadLetter], now: datetime, old: Status, new: Status,
    act: Callable[[Letters, Sequence[DeadLetter]], Mapping[UUID, Effect]] | None = None, code: str = "",
) -> dict[UUID, Effect]:  # fmt: skip
    mine = locked([letter.pk for letter in letters], old)
    chosen = sorted((letter for letter in letters if letter.pk in mine), key=lambda letter: letter.pk)
    effects = {letter.pk: OUTCOMES[new] for letter in chosen}
    if act:
        effects |= {letter.pk: Effect("refused", no_flow_takes(letter.source)) for letter in chosen}
        for theirs, some in by_kind(chosen):
            effects |= {**{letter.pk: OUTCOMES[new] for letter in some}, **act(theirs, some)}
    done = {
        pk: Move(new, note=effect.evidence, code=code) for pk, effect in effects.items() if effect.state != "refused"
    }
    move(chosen, done, old, now)
    return effects
