"""What becomes of each message: decided, drained, repaired, and the Kafka transaction that it goes into."""
