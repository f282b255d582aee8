"""An embedded Kafka-compatible broker for the demo and for tests on the wire."""

from config.embedded.broker import EmbeddedKafka
from config.embedded.clients import (
    API_VERSION,
    CLIENT_OPTIONS,
    CONSUMER_OPTIONS,
    PatientLeader,
    api_versions,
)
from config.embedded.librdkafka import EmbeddedKafkaError
from config.embedded.limits import LIMITS

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
