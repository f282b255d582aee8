"""A consumer at work: it polls, writers store, offsets follow."""

from config.kafka.runtime.consumer import Consumer
from config.kafka.runtime.writer import Handler

__all__ = ["Consumer", "Handler"]
