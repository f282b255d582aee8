"""Messages that other services promise in Kafka: read, checked, and stored once as messages of the outbox."""
