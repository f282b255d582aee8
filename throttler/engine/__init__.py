"""What becomes of each message: admitted, drained, repaired, and the Kafka transaction that it goes into."""
