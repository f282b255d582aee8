"""Makes the records of dead letters again, as their topic delivered them, and finds the letters of those that failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from config.digest import UnreadableBatch
from config.flows import Effect, Judgement, Refusal
from config.kafka import RecordBatch, Replayed
from config.kafka.format.headers import headers_of
from config.telemetry.masks import masked_error
from outbox.letters.burial import Letter
from outbox.letters.models import DeadLetter

Refused = dict[UUID, str]


@dataclass(frozen=True)
class Returned(Replayed):
    """A record that came back from a letter: what fails again is that letter's successor."""

    letter_id: UUID | None = None
    business_key: str = ""


@dataclass(frozen=True)
class ReturnedBatch:
    """Letters that one call of a handler can take: of one revision, and of one creation of each topic."""

    letters: Sequence[DeadLetter]
    batch: RecordBatch

    @property
    def pairs(self) -> Sequence[tuple[DeadLetter, Returned]]:
        return list(zip(self.letters, self.batch.records, strict=True))  # type: ignore[arg-type]


def record_of(letter: DeadLetter) -> Returned:
    """The record at its own position; Refusal for a letter that came from no topic, or is not whole."""
    if letter.partition is None or letter.offset is None or letter.timestamp is None:
        raise Refusal("the letter has no position in a topic")
    if letter.reason == UnreadableBatch.reason:
        raise Refusal("it stands for a whole batch that nobody can unpack: let the producer send its records again")
    if letter.is_excerpt:
        raise Refusal(f"of its {letter.payload_size} bytes only parts are kept: replay the record from its topic")
    key = None if letter.key is None else bytes(letter.key)
    value = None if letter.payload is None else bytes(letter.payload)
    place = (letter.topic, letter.partition, letter.offset, letter.timestamp)
    return Returned(*place, key, value, headers_of(letter.headers), letter.pk, letter.business_key)


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
    found = [
        ReturnedBatch(
            [letter for letter, _ in mine], RecordBatch([record for _, record in mine], batches[at], revision=at[0] + 1)
        )
        for at, mine in sorted(members.items())
    ]
    return found, refused


def failed_again(failed: Sequence[Letter]) -> dict[UUID, Effect]:
    """The effects of the letters whose records a handler has just buried once more, by the letters they came back from."""
    ours = [(origin, letter) for letter in failed if (origin := letter.origin)]
    rows = DeadLetter.objects.filter(pk__in=[letter.id for _, letter in ours]) if ours else DeadLetter.objects.none()
    written = set(rows.values_list("pk", flat=True))
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
    return Judgement(False, "It would be refused now.", f"{why[:1].upper()}{why[1:]}.", "warn")
