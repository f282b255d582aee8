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
    key, payload = (None if data is None else bytes(data) for data in (letter.key, letter.payload))
    headers = [(name, value.encode()) for name, value in letter.headers]
    record = Replayed(letter.topic, letter.partition, letter.offset, letter.timestamp, key, payload, headers)
    return RecordBatch([record], {letter.topic: letter.topic_id}, revision=letter.revision + 1)
