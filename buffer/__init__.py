"""Kafka to debounced batches, and the stock ledger."""
