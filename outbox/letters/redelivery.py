"""Makes the record of a dead letter again, as its topic delivered it."""

from __future__ import annotations

from config.flows import Refusal
from config.kafka import RecordBatch, Replayed
from outbox.letters.models import DeadLetter


def record_of(letter: DeadLetter) -> Replayed:
    """The record at its own position; Refusal for a letter that came from no topic, or is not whole."""
    if letter.partition is None or letter.offset is None or letter.timestamp is None:
        raise Refusal("the letter has no position in a topic")
    if letter.is_excerpt:
        raise Refusal(f"of its {letter.payload_size} bytes only parts are kept: replay the record from its topic")
    key, value = (None if raw is None else bytes(raw) for raw in (letter.key, letter.payload))
    headers = [(name, text.encode()) for name, text in letter.headers]
    return Replayed(letter.topic, letter.partition, letter.offset, letter.timestamp, key, value, headers)


def batch_of(letter: DeadLetter) -> RecordBatch:
    """A batch of that one record at the next revision."""
    return RecordBatch([record_of(letter)], {letter.topic: letter.topic_id}, revision=letter.revision + 1)
