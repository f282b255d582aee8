"""The record of a dead letter once more, as its topic delivered it."""

from __future__ import annotations

from config.flows import Refusal
from config.kafka import RecordBatch, Replayed
from outbox.letters.models import DeadLetter


def batch_of(letter: DeadLetter) -> RecordBatch:
    """A batch of that one record, at its own position and the next revision.

    Refusal for a letter that came from no topic.
    """
    if letter.partition is None or letter.offset is None or letter.timestamp is None:
        raise Refusal("the letter has no position in a topic")
    record = Replayed(
        letter.topic, letter.partition, letter.offset, letter.timestamp,
        bytes(letter.key) if letter.key is not None else None,
        bytes(letter.payload) if letter.payload is not None else None,
        [(name, value.encode()) for name, value in letter.headers],
    )  # fmt: skip
    return RecordBatch([record], {letter.topic: letter.topic_id}, revision=letter.revision + 1)
