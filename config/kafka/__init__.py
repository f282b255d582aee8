"""The Kafka runtime: one consumer, one producer, one place that imports the client."""

from config.kafka.consumer import Consumer, Handler
from config.kafka.positions import Mark, Positions
from config.kafka.producer import Failed, Message, Outcome, Producer, Refused, Sent
from config.kafka.records import Batch, Record, Replayed, Tally
from config.kafka.topics import topic_name

__all__ = [
    "Batch", "Consumer", "Failed", "Handler", "Mark", "Message", "Outcome", "Positions", "Producer", "Record",
    "Refused", "Replayed", "Sent", "Tally", "topic_name",
]  # fmt: skip
