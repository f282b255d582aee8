"""An embedded Kafka-compatible broker for the demo and for tests on the wire."""

from config.demo.embedded.broker import EmbeddedKafka
from config.demo.embedded.librdkafka import EmbeddedKafkaError
from config.demo.embedded.limits import API_VERSION, LIMITS

__all__ = ["API_VERSION", "LIMITS", "EmbeddedKafka", "EmbeddedKafkaError"]
