"""An embedded Kafka-compatible broker for the demo and for tests on the wire."""

from config.demo.embedded.broker import EmbeddedKafka
from config.demo.embedded.clients import (
    API_VERSION,
    CLIENT_OPTIONS,
    CONSUMER_OPTIONS,
    PatientLeader,
    api_versions,
)
from config.demo.embedded.librdkafka import EmbeddedKafkaError
from config.demo.embedded.limits import LIMITS

__all__ = [
    "API_VERSION",
    "CLIENT_OPTIONS",
    "CONSUMER_OPTIONS",
    "LIMITS",
    "EmbeddedKafka",
    "EmbeddedKafkaError",
    "PatientLeader",
    "api_versions",
]
