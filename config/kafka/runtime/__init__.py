"""The consumer: it polls, its writers store the batches, then it commits the offsets."""

from config.kafka.runtime.consumer import Consumer
from config.kafka.runtime.database import consumer_of
from config.kafka.runtime.writer import Handler

__all__ = ["Consumer", "Handler", "consumer_of"]
