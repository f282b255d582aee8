"""The owner of partitions: decides, buffers, drains and runs the Kafka transaction."""
