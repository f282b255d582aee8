"""Kafka: topics, records, positions, the producer; the one place that imports the client. `consumer` reads."""

from config.kafka.positions import Mark, Positions
from config.kafka.producer import Failed, Outgoing, Producer, Refused, SendResult, Sent
from config.kafka.records import Record, RecordBatch, Replayed, Tally
from config.kafka.topics import topic_name

__all__ = [
    "Failed",
    "Mark",
    "Outgoing",
    "Positions",
    "Producer",
    "Record",
    "RecordBatch",
    "Refused",
    "Replayed",
    "SendResult",
    "Sent",
    "Tally",
    "topic_name",
]
