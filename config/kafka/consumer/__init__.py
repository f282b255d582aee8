"""The consumer: it polls, its writers store the batches, then it commits the offsets."""

from config.kafka.consumer.database import consumer_of
from config.kafka.consumer.loop import Consumer
from config.kafka.consumer.writer import Handler

__all__ = ["Consumer", "Handler", "consumer_of"]
