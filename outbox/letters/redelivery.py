"""Takes letters back and proves what became of them; makes their records again as the topic delivered them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TypeVar
from uuid import UUID

from django.db import transaction
from django.utils.text import capfirst

from config.database.queries import batched
from config.database.retry import Remedy, remedy_for
from config.database.upsert import Upsert, new, timestamp_text
from config.flows import by_kind, flows, no_flow_takes
from config.formats.registry import RegistryUnavailable
from config.kafka import RecordBatch, Replayed
from config.kafka.records import headers_from_rows
from config.letters import Effect, Judgement, Letters, Refusal
from config.payload import EditedCopy, UnreadableBatch
from config.processes.worker import until_it_stands
from config.telemetry.logs import log
from config.telemetry.redaction import error_text, masked_error
from outbox.letters.burial import STOPPED, Letter
from outbox.letters.models import DeadLetter, PayloadRevision, ProofRound
from outbox.letters.transitions import Move, Status, locked, move

# -- Makes the records of dead letters again -----------------------------------------------------------------
# As their topic delivered them, and finds the letters of those that failed.
Refused = dict[UUID, str]


@dataclass(frozen=True)
class Returned(Replayed):
    """A record that came back from a letter: what fails again is that letter's successor."""

    letter_id: UUID | None = None
    business_key: str = ""


@dataclass(frozen=True)
class ReturnedBatch:
    """Letters that one call of a handler can take: of one revision, and of one creation of each topic."""

    pairs: Sequence[tuple[DeadLetter, Returned]]
    batch: RecordBatch  # of the same records, in the same order


def record_of(letter: DeadLetter) -> Returned:
    """The record at its own position; Refusal for a letter that came from no topic, or is not whole."""
    if letter.partition is None or letter.offset is None or letter.timestamp is None:
        raise Refusal("the letter has no position in a topic")
    if letter.reason == UnreadableBatch.reason:
        raise Refusal("it stands for a whole batch that nobody can unpack: let the producer send its records again")
    if letter.is_excerpt:
        raise Refusal(f"of its {letter.payload_size} bytes only parts are kept: replay the record from its topic")
    key = None if letter.key is None else bytes(letter.key)
    read = EditedCopy if letter.edit else bytes
    value = None if letter.payload is None else read(letter.payload)
    place = (letter.topic, letter.partition, letter.offset, letter.timestamp)
    return Returned(*place, key, value, headers_from_rows(letter.headers), letter.pk, letter.business_key)


def batch_of(letter: DeadLetter) -> RecordBatch:
    """A batch of that one record at the next revision."""
    return RecordBatch([record_of(letter)], {letter.topic: letter.topic_id}, revision=letter.revision + 1)


def returns_of(letters: Sequence[DeadLetter]) -> tuple[list[ReturnedBatch], Refused]:
    """As few batches as these letters allow, in the order of their positions; and why others cannot come back."""
    batches: dict[tuple[int, int], dict[str, str]] = {}
    members: dict[tuple[int, int], list[tuple[DeadLetter, Returned]]] = {}
    refused: Refused = {}
    for letter in sorted(letters, key=lambda letter: (letter.topic, letter.partition or 0, letter.offset or 0)):
        try:
            record = record_of(letter)
        except Refusal as refusal:
            refused[letter.pk] = str(refusal)
            continue
        number = 0
        while (
            batches.setdefault((letter.revision, number), {}).setdefault(letter.topic, letter.topic_id)
            != letter.topic_id
        ):
            number += 1
        members.setdefault((letter.revision, number), []).append((letter, record))
    returns = [
        ReturnedBatch(mine, RecordBatch([record for _, record in mine], batches[at], revision=at[0] + 1))
        for at, mine in sorted(members.items())
    ]
    return returns, refused


def failed_again(failed: Sequence[Letter]) -> dict[UUID, Effect]:
    """The effects of the letters whose records a handler has just buried once more, by the letters they came back from."""
    ours = [(origin, letter) for letter in failed if (origin := letter.origin)]
    named = [letter.id for _, letter in ours if letter.id]
    written = set(DeadLetter.objects.filter(pk__in=named).values_list("pk", flat=True)) if named else set()
    return {
        origin: Effect("failed_again", letter.error, successor=letter.id if letter.id in written else _known(letter))
        for origin, letter in ours
    }


def _known(letter: Letter) -> UUID | None:
    """The letter that the same record left before at this step and revision: `bury` has written no second one."""
    topic_id, topic, partition, offset, step, revision = letter.key
    rows = DeadLetter.objects.filter(topic=topic, partition=partition, offset=offset, step=step, revision=revision)
    return rows.filter(topic_id=topic_id).values_list("pk", flat=True).first()


def foreseen(failed: Sequence[Letter]) -> dict[UUID, Judgement]:
    """What letters say that are not written, of those that their records came back from."""
    said = [(letter.origin, masked_error(letter.error)) for letter in failed]
    return {origin: Judgement(False, "Fails again.", error, "warn") for origin, error in said if origin}


def refusals(refused: Mapping[UUID, str]) -> dict[UUID, Effect]:
    return {pk: Effect("refused", why) for pk, why in refused.items()}


def not_eligible(refused: Mapping[UUID, str]) -> dict[UUID, Judgement]:
    return {pk: would_refuse(why) for pk, why in refused.items()}


def would_refuse(why: str) -> Judgement:
    """A letter that cannot be taken back now."""
    return Judgement(False, "It would be refused now.", f"{capfirst(why)}.", "warn")


# -- Takes letters back, and proves what became of them ------------------------------------------------------
# The flows' three questions, asked for chunks of letters.
CHUNK = 500  # letters of one transaction
WORTH_ANOTHER_TRY = (Remedy.RERUN, Remedy.WAIT)
NO_RECORD = "a stopped partition is no record: start its worker with --accept-reset, then resolve"
STATES = {"waiting": Status.REQUEUED, "resolved": Status.RESOLVED, "failed_again": Status.FAILED_AGAIN}
STATES["discarded"] = Status.DISCARDED
FOUND = Upsert(
    ProofRound,
    columns="source overdue oldest_at",
    constants="looked_at",
    key="source",
    update=new("overdue oldest_at looked_at"),
)
REFUSED, WAITING = partial(Effect, "refused"), partial(Effect, "waiting")
Answer = TypeVar("Answer")
Answers = Mapping[UUID, Answer]


def judge(letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Judgement]:
    """Whether each letter can be taken back now, and what would happen; nothing is written."""
    return _asked(letters, lambda theirs, part: theirs.judge(part, now), would_refuse)


def foresee(letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Judgement]:
    """The same for a preview or a page: a letter that its flow breaks on says so and spares the others."""
    return dict(_by_halves(lambda part: judge(part, now), letters, would_refuse)) if letters else {}


def take_back(letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Effect]:
    """Give letters back to their flows and write what became of them, in the caller's transaction.

    A letter that is not open any more is not in the answer. One that was refused stays open. Raises Stale, or the
    database's own error, where the whole transaction is to be run again.
    """
    mine = locked([letter.pk for letter in letters], Status.OPEN)
    opened = sorted((letter for letter in letters if letter.pk in mine), key=lambda letter: letter.pk)
    effects = _answers(opened, lambda theirs, some: theirs.take_back(some, now), REFUSED)
    moves = {pk: _move_of(effect) for pk, effect in effects.items() if effect.state != "refused"}
    move(opened, moves, Status.OPEN, now)
    return effects


def look_after(now: datetime, limit: int = CHUNK) -> int:
    """Close the requeued letters whose effect is proven, `limit` a transaction, by key; returns how many."""
    patience = {letters.source: letters.patience for flow in flows() for letters in flow.letters()}
    overdue = dict.fromkeys(patience, 0)
    oldest: dict[str, datetime] = {}
    closed = 0
    last: UUID | None = None
    while waiting := _after(last, limit):
        last = waiting[-1][0]
        done = until_it_stands(partial(look_after_these, [pk for pk, _, _ in waiting], now), "look-after")
        closed += len(done)
        for pk, source, since in waiting:
            if pk not in done and source in patience:
                oldest[source] = min(since, oldest.get(source, since))
                overdue[source] += now - since >= patience[source]
    times = {source: timestamp_text(since) for source, since in oldest.items()}
    FOUND.run([(source, number, times.get(source)) for source, number in sorted(overdue.items())], {"looked_at": now})
    return closed


def _after(last: UUID | None, limit: int) -> list[tuple[UUID, str, datetime]]:
    rows = DeadLetter.objects.requeued().order_by("pk")
    rows = rows.filter(pk__gt=last) if last else rows
    return [
        (pk, source, taken or changed)
        for pk, source, taken, changed in rows.values_list("pk", "source", "requeued_at", "updated_at")[:limit]
    ]


def look_after_these(ids: Sequence[UUID], now: datetime) -> set[UUID]:
    """Close those of these requeued letters whose effect is proven, in transactions of their own; returns which."""
    return {pk for part in DeadLetter.objects.portions(ids) for pk in _look_after_these(part, now)}


def _look_after_these(ids: Sequence[UUID], now: datetime) -> set[UUID]:
    with transaction.atomic():
        mine = locked(ids, Status.REQUEUED)
        rows = DeadLetter.objects.filter(pk__in=mine).defer("traceback", "error").order_by("pk")
        letters = PayloadRevision.objects.in_force(rows)
        effects = _answers(letters, lambda theirs, some: theirs.effect(some, now), WAITING)
        notes = {letter.pk: letter.note for letter in letters}
        known = {pk: effect for pk, effect in effects.items() if effect.state not in ("waiting", "refused")}
        moves = {pk: _move_of(effect, notes[pk]) for pk, effect in known.items()}
        move(letters, moves, Status.REQUEUED, now)
        return set(known)


def _answers(
    letters: Sequence[DeadLetter],
    ask: Callable[[Letters, Sequence[DeadLetter]], Mapping[UUID, Effect]],
    broken: Callable[[str], Effect],
) -> dict[UUID, Effect]:
    """The effect of each letter; of one that its flow breaks on, `broken`.

    What failed again says so with an error, which may repeat values of the payload: nobody can mask it later.
    """
    effects = _asked(letters, lambda theirs, part: _by_halves(lambda half: ask(theirs, half), part, broken), broken)
    return {
        pk: replace(effect, evidence=masked_error(effect.evidence)) if effect.state == "failed_again" else effect
        for pk, effect in effects.items()
    }


def _asked(
    letters: Sequence[DeadLetter],
    ask: Callable[[Letters, Sequence[DeadLetter]], Mapping[UUID, Answer]],
    refused: Callable[[str], Answer],
) -> dict[UUID, Answer]:
    """Each letter's answer from the flow that takes it."""
    records = [letter for letter in letters if letter.step != STOPPED]
    answers = {letter.pk: refused(NO_RECORD) for letter in letters if letter.step == STOPPED}
    for theirs, mine in by_kind(records):
        for part in batched(mine, CHUNK):
            answers |= ask(theirs, part)
    return {letter.pk: refused(no_flow_takes(letter.source)) for letter in records} | answers


def _by_halves(
    ask: Callable[[Sequence[DeadLetter]], Mapping[UUID, Answer]],
    letters: Sequence[DeadLetter],
    broken: Callable[[str], Answer],
) -> Mapping[UUID, Answer]:
    """What `ask` answers; a letter that the database or its flow breaks on is found by halves and spares the rest.

    A database that is away, or in contention, is no letter's fault: raised, as nothing of the transaction may stay.
    """
    try:
        with transaction.atomic():
            return ask(letters)
    except RegistryUnavailable as error:
        # No fault of the database either: the letters of other flows go on.
        return {letter.pk: broken(str(error)) for letter in letters}
    except Exception as error:
        if remedy_for(error) in WORTH_ANOTHER_TRY:
            raise
        if len(letters) == 1:
            log.exception("letter_breaks_its_flow", letter=str(letters[0].pk), source=letters[0].source)
            return {letters[0].pk: broken(why_broken(error))}
    middle = len(letters) // 2
    return {**_by_halves(ask, letters[:middle], broken), **_by_halves(ask, letters[middle:], broken)}


def why_broken(error: BaseException) -> str:
    """What the database says against a letter, or that its flow breaks on it."""
    remedy, text = remedy_for(error), error_text(error)[:200]
    if remedy is Remedy.PARTITION:
        return "its month has no partition: run rotate_partitions, then try again"
    if remedy is Remedy.DATA:
        return f"the database still refuses it: {text}"
    return f"its flow breaks on it: {type(error).__name__}: {text}"


def _move_of(effect: Effect, note: str | None = None) -> Move:
    return Move(
        STATES[effect.state],
        note=effect.result if note is None else note,
        evidence="" if effect.state == "waiting" else effect.evidence,
        url=effect.url,
        carrier=effect.carrier,
        successor=effect.successor,
    )
