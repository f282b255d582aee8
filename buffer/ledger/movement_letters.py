"""Letters of the ledger: their records are recorded and adjusted again, and their rows prove it at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from django.conf import settings

from buffer.ledger.batch import APPLIED, Prepared, Verdict
from buffer.ledger.handler import Track
from buffer.ledger.models import InventoryItem, InventoryLocation
from buffer.ledger.statements import read_known
from buffer.ledger.topics import Merchant, Movements, Variant, locked, readable, sources, words_of
from config.formats import shown
from config.kafka import Record, topic_name
from config.letters import Effect, Judgement, Letters
from config.telemetry.redaction import masked_error
from outbox.letters.models import DeadLetter
from outbox.letters.redelivery import Refused, ReturnedBatch, failed_again, foreseen, not_eligible, refusals, returns_of

NO_EFFECT = "the record says nothing of stock: nothing is missing"
FOLLOWED = Judgement(True, "It is followed.", "A merchant or a variant is written.", "ok")
SAYS_NOTHING = Judgement(True, "Changes nothing.", "The record says nothing of stock.", "idle")
RECORDED_BEFORE = Judgement(True, "Changes nothing.", "The ledger has its rows already.", "idle")
MOST_STOCKS = 5  # of a letter that its evidence names


class MovementLetters(Letters[DeadLetter]):
    """The dead letters of the stock topics."""

    @property
    def readable(self) -> Sequence[str]:  # type: ignore[override]
        return readable()

    @property
    def locked(self) -> Sequence[str]:  # type: ignore[override]
        return locked()

    def order_in(self, key: str, topic: str) -> str:
        source = sources().get(topic)
        return key if source and source.of_orders else ""

    def opened(self, letter: DeadLetter) -> tuple[bytes, str]:
        source = sources().get(letter.topic)
        return shown(source.gate, source.options, bytes(letter.payload or b"")) if source else (b"", "")

    def judge(self, letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Judgement]:
        """What would move; a letter whose record is refused before any look at the database would fail again."""
        returns, refused = _returns(letters)
        judgements = not_eligible(refused)
        handler = Track()
        for back in returns:
            batch = back.batch
            batch.prepared = handler.decode(batch)
            judgements |= foreseen(batch.prepared.letters)
            judgements |= _judged(back, batch.prepared, handler.foresee(batch))
        return judgements

    def take_back(self, letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Effect]:
        """Record and adjust at the next revision, in the caller's transaction; rows prove what did not fail."""
        returns, refused = _returns(letters)
        effects = refusals(refused)
        handler = Track()
        for back in returns:
            batch = back.batch
            batch.prepared = handler.prepare(batch)
            applied = handler.apply(batch, now)
            failed = failed_again(applied.letters)
            effects |= failed | _proofs(back, batch.prepared, failed)
        return effects

    def effect(self, letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Effect]:
        """What the ledger's rows say of letters that were taken back."""
        effects: dict[UUID, Effect] = {}
        handler = Track()
        for back in _returns(letters)[0]:
            effects |= _proofs(back, handler.decode(back.batch), ())
        return effects

    def faults(self, letter: DeadLetter) -> list[str]:
        """What the gate and the function of its topic say against its record; nothing is written."""
        returns, refused = _returns([letter])
        handler = Track()
        letters = [buried for back in returns for buried in handler.decode(back.batch).letters]
        return [*refused.values(), *(buried.error for buried in letters)]

    def identity(self, letter: DeadLetter) -> str:
        """The reference that its record moves stock for, or the merchant or variant that it is about."""
        handler = Track()
        for back in _returns([letter])[0]:
            prepared = handler.decode(back.batch)
            for tracked in prepared.tracked:
                return f"{tracked.movements.reference_type} {tracked.movements.reference_id}"
            for _, change in prepared.changes:
                return f"{type(change).__name__} {change[0]}"
        return ""

    def why_not_edited(self, letter: DeadLetter) -> str:
        return ""


def _returns(letters: Sequence[DeadLetter]) -> tuple[list[ReturnedBatch], Refused]:
    read = {topic_name(name) for name in settings.MOVEMENTS}
    gone = {
        letter.pk: f"topic {letter.topic} is not in MOVEMENTS any more"
        for letter in letters
        if letter.topic not in read
    }
    returns, refused = returns_of([letter for letter in letters if letter.pk not in gone])
    return returns, {**refused, **gone}


def _proofs(back: ReturnedBatch, prepared: Prepared, failed: Iterable[UUID]) -> dict[UUID, Effect]:
    """Of each letter that did not fail: do its rows stand, with its deltas?"""
    movements = {id(tracked.record): tracked.movements for tracked in prepared.tracked}
    refused = {id(letter.record) for letter in prepared.letters}
    recorded = _recorded(movements.values())
    stored = _stored(prepared.changes)
    effects: dict[UUID, Effect] = {}
    for letter, record in back.pairs:
        if letter.pk in failed or id(record) in refused:
            continue
        if moves := movements.get(id(record)):
            effects[letter.pk] = _proof(moves, recorded, words_of(record.topic))
        else:
            effects[letter.pk] = stored.get(id(record)) or Effect("resolved", NO_EFFECT)
    return effects


def _recorded(movements: Iterable[Movements]) -> Mapping[tuple[str, str, str], int]:
    """`{(type, reference, stock): delta}` of what the ledger holds of these."""
    wanted: dict[str, set[tuple[str, str]]] = {}
    for moves in movements:
        wanted.setdefault(moves.reference_type, set()).update((moves.reference_id, stock) for stock in moves.deltas)
    return {
        (kind, *key): known.delta
        for kind, keys in sorted(wanted.items())
        for key, known in read_known(kind, sorted(keys)).items()
    }


def _proof(moves: Movements, recorded: Mapping[tuple[str, str, str], int], words: Mapping[str, str]) -> Effect:
    kind, reference = moves.reference_type, moves.reference_id
    missing = [stock for stock, delta in moves.deltas.items() if recorded.get((kind, reference, stock)) != delta]
    if missing:
        return Effect("waiting", f"the ledger does not say {kind} {reference} of {words['stock']} {min(missing)}")
    return Effect("resolved", f"recorded: {kind} {reference}, {_in_words(moves.deltas, words)}")


def _in_words(deltas: Mapping[str, int], words: Mapping[str, str]) -> str:
    moved = sorted(deltas.items())[:MOST_STOCKS]
    named = [f"{words['stock']} {stock}: {delta:+d} {words['quantity']}".rstrip() for stock, delta in moved]
    more = len(deltas) - MOST_STOCKS
    return ", ".join([*named, f"{more} more"] if more > 0 else named)


def _stored(changes: Sequence[tuple[Record, Merchant | Variant]]) -> dict[int, Effect]:
    """Whether the rows of merchants and variants are there."""
    merchants = {change.merchant_id for _, change in changes if isinstance(change, Merchant)}
    variants = {change.item_id for _, change in changes if isinstance(change, Variant)}
    locations = InventoryLocation.objects.filter(merchant_id__in=merchants) if merchants else None
    known = set(locations.values_list("merchant_id", flat=True)) if locations is not None else set()
    items = set(InventoryItem.objects.filter(pk__in=variants).values_list("pk", flat=True)) if variants else set()
    return {id(record): _mirrored(change, known, items) for record, change in changes}


def _mirrored(change: Merchant | Variant, merchants: set[str], items: set[str]) -> Effect:
    if isinstance(change, Merchant):
        there, what = change.merchant_id in merchants, f"the location of merchant {change.merchant_id}"
    else:
        there, what = change.item_id in items, f"item {change.item_id}"
    return Effect("resolved", f"{what} is there") if there else Effect("waiting", f"{what} is not there")


def _judged(back: ReturnedBatch, prepared: Prepared, verdicts: Mapping[int, Verdict]) -> dict[UUID, Judgement]:
    movements = {id(tracked.record): tracked.movements for tracked in prepared.tracked}
    followed = {id(record) for record, _ in prepared.changes}
    refused = {id(letter.record) for letter in prepared.letters}
    judgements = {}
    for letter, record in back.pairs:
        number = id(record)
        if moves := movements.get(number):
            judgements[letter.id] = _foresee(moves, verdicts[number], record.topic)
        elif number not in refused:
            judgements[letter.id] = FOLLOWED if number in followed else SAYS_NOTHING
    return judgements


def _foresee(moves: Movements, verdict: Verdict, topic: str) -> Judgement:
    if verdict is APPLIED:
        return Judgement(True, _in_words(moves.deltas, words_of(topic)), "Its rows are recorded.", "ok")
    if verdict.is_refusal:
        return Judgement(False, "Fails again.", masked_error(verdict.text(topic)), "warn")
    return RECORDED_BEFORE
